"""Steps that verify trees commit what plain decoding says: every builder and drafter, on small random targets.

The drafters with weights are random too, so nearly all they say is wrong; one that knows the answer puts it on
branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specpilot.draft import Drafter, SuffixDrafter
from specpilot.engines.base import SamplingParams
from specpilot.engines.mechanisms import Builder, Mechanisms
from specpilot.errors import RequestError
from specpilot.refengine.dense import load_dense
from specpilot.refengine.dflash2 import DFlash2Drafter
from specpilot.refengine.dflash2_config import DFlash2Config
from specpilot.refengine.dspark import DSparkDrafter
from specpilot.refengine.dspark_config import DSparkConfig
from specpilot.refengine.eagle3 import Eagle3Drafter
from specpilot.refengine.eagle3_config import Eagle3Config
from specpilot.refengine.model import TargetModel
from specpilot.refengine.state import SequenceState
from specpilot.refengine.target import Target
from tests.oracles import random_dflash2, random_dspark, random_eagle3
from tests.oracles.knowing_drafter import KnowingDrafter
from tests.specpilot.refengine.decoding import decode, decode_steps
from tests.specpilot.refengine.random_dense import save_random
from tests.specpilot.refengine.random_target import SMALL, UNTIED, random_tensors

BUILDERS: tuple[Builder, ...] = ("chain", "best_first", "ddtree", "eagle2", "sequoia")
TREES = BUILDERS[1:]
DRAFTERS = ("dflash2", "dspark", "eagle3", "suffix")
NUM_TOKENS = 24


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["hybrid", "hybrid untied", "dense", "dense with windows"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    if request.param.startswith("hybrid"):
        config = SMALL if request.param == "hybrid" else UNTIED
        return TargetModel(config, random_tensors(config), "judge")
    folder = tmp_path_factory.mktemp("dense")
    save_random(folder, "llama" if request.param == "dense" else "gemma3")
    return load_dense(folder, mode="judge")


@pytest.fixture(scope="module")
def hybrid() -> TargetModel:
    return TargetModel(SMALL, random_tensors(SMALL), "judge")


def prompt_of(seed: int, length: int) -> list[int]:
    return torch.randint(300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def drafter_of(name: str, target: TargetModel) -> Drafter:
    shape = {"hidden_size": 96, "vocab_size": 300, "num_target_layers": 4}
    if name == "dflash2":
        config = random_dflash2.make_config({"target_layer_ids": [1, 2, 3]}, **shape)
        return DFlash2Drafter(DFlash2Config.parse(config), random_dflash2.make_tensors(config, 1), target)
    if name == "dspark":
        config = random_dspark.make_config(target_layer_ids=[1, 2, 3], **shape)
        return DSparkDrafter(DSparkConfig.parse(config), random_dspark.make_tensors(config, 1), target)
    if name == "eagle3":
        config = random_eagle3.make_config({"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, **shape)
        return Eagle3Drafter(Eagle3Config.parse(config), random_eagle3.make_tensors(config, 2), target)
    return SuffixDrafter()


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_ids_are_equal_for_every_drafter_and_builder(
    hybrid: TargetModel, name: str, builder: Builder
) -> None:
    drafter, prompt = drafter_of(name, hybrid), prompt_of(3, 21) * 2
    plain, _ = decode(hybrid, None, prompt, NUM_TOKENS)
    for num_nodes in (1, 2, 13):
        mechanisms = Mechanisms(builder, num_nodes)
        tokens, steps = decode_steps(hybrid, drafter, prompt, NUM_TOKENS, mechanisms=mechanisms)
        assert tokens == plain
        assert max(step.num_drafted for step in steps) <= num_nodes - 1
        if name != "suffix" and num_nodes == 13:
            assert {step.mechanism for step in steps} == {builder}
            assert max(step.num_drafted for step in steps) > 6


@pytest.mark.parametrize("right", [[4], [0], [3, 0, 2], [1, 4, 0, 0, 2]])
@pytest.mark.parametrize("builder", ["best_first", "ddtree"])
def test_accepted_branches_are_committed(target: Target, builder: Builder, right: list[int]) -> None:
    """All paths of depth 4 are in the tree, and the right one is never its first rows."""
    prompt = prompt_of(5, 17)
    plain, _ = decode(target, None, prompt, 40)
    assert len(set(plain)) > 4
    drafter = KnowingDrafter([*prompt, *plain], right, 300)
    tokens, steps = decode_steps(target, drafter, prompt, 36, mechanisms=Mechanisms(builder, 31))
    assert tokens == plain[:36]
    for number, step in enumerate(steps[:-1]):
        assert len(step.token_ids) - 1 == right[number % len(right)]
        assert step.num_drafted == 30 and step.num_positions == 4
        assert isinstance(step.kept, int) == (len(step.token_ids) == 1)  # a branch is no prefix


def test_control_another_branch_of_that_length_changes_the_answer(
    hybrid: TargetModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state keeps rows of a sibling's branch: the next tokens are others, and the drafter sees it."""
    prompt = prompt_of(5, 17)
    plain, _ = decode(hybrid, None, prompt, 40)
    drafter = KnowingDrafter([*prompt, *plain], [3], 300)

    def commit_first_branch(states: Sequence[SequenceState], kept: Sequence[NDArray[np.int64]]) -> None:
        tree = states[0]._tree
        assert tree is not None
        path = [0]
        while len(path) < len(kept[0]):
            path.append(tree.parents.tolist().index(path[-1]))
        states[0].commit(np.array(path))

    monkeypatch.setattr("tests.specpilot.refengine.decoding.commit_rows", commit_first_branch)
    with pytest.raises(AssertionError, match="committed tokens are not"):
        decode_steps(hybrid, drafter, prompt, 36, mechanisms=Mechanisms("best_first", 31))


@pytest.mark.parametrize("builder", TREES)
def test_sampled_tokens_over_trees_are_those_of_plain_decoding(target: Target, builder: Builder) -> None:
    """With one seed: a tree decides how many draws a step makes and not what they are."""
    params, prompt = SamplingParams(max_new_tokens=40, temperature=0.6, top_p=0.95), prompt_of(8, 9)
    plain, _ = decode_steps(target, None, prompt, 40, params=params)
    drafter = KnowingDrafter([*prompt, *plain], [2, 4, 0], 300)
    mechanisms = Mechanisms(builder, 31)
    tokens, steps = decode_steps(target, drafter, prompt, 36, mechanisms=mechanisms, params=params)
    assert tokens == plain[:36] != decode(target, None, prompt, 36)[0]
    assert len(steps) < 30


@pytest.mark.parametrize("builder", TREES)
def test_trees_end_where_the_context_ends(builder: Builder) -> None:
    config = replace(SMALL, context_length=64)
    target = TargetModel(config, random_tensors(config), "judge")
    prompt = prompt_of(2, 40)
    plain, _ = decode(target, None, prompt, 24)
    drafter = KnowingDrafter([*prompt, *plain], [2], 300)
    tokens, steps = decode_steps(target, drafter, prompt, 24, mechanisms=Mechanisms(builder, 31))
    assert tokens == plain
    assert steps[-1].num_positions < 4  # there was no room for more
    with pytest.raises(RequestError, match="context"):
        target.new_state(65)


def test_more_positions_than_trained(hybrid: TargetModel) -> None:
    prompt = prompt_of(11, 30)
    plain, _ = decode(hybrid, None, prompt, NUM_TOKENS)
    for name in ("dflash2", "dspark", "eagle3"):
        drafter = drafter_of(name, hybrid)
        for builder in BUILDERS[:2]:
            mechanisms = Mechanisms(builder, 40, 15)
            tokens, steps = decode_steps(hybrid, drafter, prompt, NUM_TOKENS, mechanisms=mechanisms)
            assert tokens == plain
            deepest = max(step.num_positions for step in steps)
            assert deepest == 15 if builder == "chain" else deepest <= 15
