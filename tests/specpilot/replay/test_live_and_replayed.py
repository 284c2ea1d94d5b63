"""A replayed builder takes the steps that the engine takes with it, and accepts the tokens that the engine accepts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specpilot.draft.builders import make_builder
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import Mechanisms
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot.replay.every_position import record_every_position
from specpilot.replay.recorder import FileRecorder
from specpilot.replay.records import ReplayStep, read_records
from specpilot.replay.selection import num_accepted, own_steps

PROMPT = "A farmer has 12 apples and buys 30 more. How many apples does he have?"
NUM_TOKENS = 48


@pytest.fixture(scope="module", params=["dflash2", "dspark", "eagle3", "suffix"])
def drafter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def recordings(
    drafter: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ReferenceEngine, list[ReplayStep], list[ReplayStep]]:
    """The engine, the steps it took with best-first trees of 12 rows, and a lattice at every position of the answer."""
    live, every = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("every")
    recorder = FileRecorder(live, model_id="bundled", model_hash="0")
    engine = build_engine(mode="judge", recorder=recorder)
    prompt_ids = engine.apply_chat_template([{"role": "user", "content": PROMPT}])
    request = GenerateRequest(
        prompt_ids,
        SamplingParams(max_new_tokens=NUM_TOKENS, ignore_eos=True),
        drafter,
        mechanisms=Mechanisms(builder="best_first", num_nodes=12),
    )
    answer = [token for chunk in engine.generate(request) for token in chunk.token_ids]
    engine.drain(60)
    recorder.close()
    recorder = FileRecorder(every, model_id="bundled", model_hash="0")
    num_steps = record_every_position(
        engine.target, engine.drafters[drafter], drafter, prompt_ids, answer, recorder, "r"
    )
    recorder.close()
    assert num_steps == NUM_TOKENS - 1
    return engine, read_records([live]), read_records([every])


def same_lattice(one: ReplayStep, other: ReplayStep) -> bool:
    a, b = one.lattice, other.lattice
    return torch.equal(a.candidate_ids, b.candidate_ids) and bool(
        (a.edge_scores.numpy().view(np.int32) == b.edge_scores.numpy().view(np.int32)).all()
    )


def test_lattices_by_teacher_forcing_have_the_live_bits(
    recordings: tuple[ReferenceEngine, list[ReplayStep], list[ReplayStep]],
) -> None:
    _, live, every = recordings
    by_position = {step.position: step for step in every}
    compared = [step for step in live if step.position in by_position]
    # At the end of a sequence the engine asks for fewer positions.
    compared = [step for step in compared if step.lattice.depth == by_position[step.position].lattice.depth]
    assert len(compared) >= 3
    for step in compared:
        other = by_position[step.position]
        assert step.root_id == other.root_id
        assert same_lattice(step, other), f"position {step.position}"


def test_replayed_trees_and_steps_are_the_live_ones(
    recordings: tuple[ReferenceEngine, list[ReplayStep], list[ReplayStep]],
) -> None:
    _, live, every = recordings
    builder = make_builder("best_first")
    for step in live:
        tree = builder.build(step.lattice, step.root_id, 12)
        assert tree.token_ids.tolist() == step.tree.token_ids.tolist()
        assert tree.parents.tolist() == step.tree.parents.tolist()
        assert num_accepted(tree, np.array(step.kept_tokens)) == len(step.kept_tokens) - 1
    accepted = [num_accepted(builder.build(s.lattice, s.root_id, 12), s.truth) for s in every]
    taken = own_steps(every, accepted)
    assert taken
    replayed = {every[index].position: accepted[index] for index in taken}
    lived = {step.position: len(step.kept_tokens) - 1 for step in live}
    shared = [position for position in lived if position <= max(replayed)]
    assert [(p, lived[p]) for p in shared if p in replayed] == list(replayed.items())
    # A step without a draft is not recorded live: the replay knows it as a lattice of depth 0.
    assert all(every[i].lattice.depth == 0 for i in taken if every[i].position not in lived)
