"""Two-level verification says what plain decoding says, whatever the copy makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree
from specpilot.engines.base import Chunk, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import BatchMechanisms, Builder, Mechanisms, QWeights
from specpilot.errors import EngineError, RequestError, Unsupported
from specpilot.models.build import build_engine
from specpilot.refengine.copies import TargetCopies
from specpilot.refengine.dense import load_dense
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.model import TargetModel
from specpilot.refengine.speculation import plan_speculation
from specpilot.refengine.state import SequenceState
from specpilot.refengine.target import Target
from specpilot.refengine.two_level import QCycle, join_trees
from specpilot.verify import TreeWalk
from tests.oracles.knowing_drafter import KnowingDrafter
from tests.oracles.tree_law import random_tree
from tests.specpilot.refengine.decoding import decode, decode_steps
from tests.specpilot.refengine.random_dense import save_random
from tests.specpilot.refengine.random_target import SMALL, random_tensors
from tests.specpilot.refengine.test_tree_rows import assert_same_memory
from tests.specpilot.refengine.test_tree_steps import DRAFTERS, drafter_of, prompt_of

BUILDERS: tuple[Builder, ...] = ("chain", "best_first")
KINDS: tuple[QWeights, ...] = ("w12_view", "int8", "int6")
QUESTION = "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?"


@pytest.fixture(scope="module")
def hybrid() -> TargetModel:
    return TargetModel(SMALL, random_tensors(SMALL), "judge")


@pytest.fixture(scope="module")
def copies(hybrid: TargetModel) -> TargetCopies:
    return TargetCopies(hybrid)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, max_running=4)


@pytest.mark.parametrize("builder", ["chain", "best_first"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_ids_are_equal_for_every_drafter_and_copy(
    hybrid: TargetModel, copies: TargetCopies, name: str, kind: QWeights, builder: Builder
) -> None:
    drafter, prompt = drafter_of(name, hybrid), prompt_of(3, 21) * 2
    plain, _ = decode(hybrid, None, prompt, 20)
    for num_nodes in (2, 13):
        mechanisms = Mechanisms(builder, num_nodes, q_weights=kind)
        tokens, steps = decode_steps(hybrid, drafter, prompt, 20, mechanisms=mechanisms, copies=copies)
        assert tokens == plain
        for step in steps:
            assert step.num_drafted <= num_nodes - 1
            assert step.num_q_rows <= num_nodes
            assert (step.num_q_rows > 0) == (step.q_us > 0)
        assert any(step.num_q_rows for step in steps) or name == "suffix"


def test_every_branch_and_depth_is_committed_right(
    tmp_path: Any, hybrid: TargetModel, copies: TargetCopies
) -> None:
    """Right tokens on branches of both trees; the drafter compares all it is given with the answer, the Q pass's tokens
    too, as long as the copy agrees."""
    save_random(tmp_path, "llama")
    dense = load_dense(tmp_path, mode="judge")
    targets: tuple[tuple[Target, TargetCopies], ...] = ((hybrid, copies), (dense, TargetCopies(dense)))
    for target, made in targets:
        prompt = prompt_of(5, 17)
        plain, _ = decode(target, None, prompt, 60)
        mechanisms = Mechanisms("best_first", 63, 3, q_weights="int8")
        exact = made.q_copy("int8").target
        for right in ([3, 2], [0, 3], [2, 0, 1, 3], [3]):
            drafter = KnowingDrafter([*prompt, *plain, *plain], right, 300)
            # A copy that is right: what it lets through is committed by the exact pass.
            object.__setattr__(made.q_copy("int8"), "target", target)
            tokens, steps = decode_steps(target, drafter, prompt, 40, mechanisms=mechanisms, copies=made)
            object.__setattr__(made.q_copy("int8"), "target", exact)
            assert tokens == plain[:40]
            # Both drafts of a cycle are accepted, with the Q pass's token between them and the exact one behind them.
            first, second = right[0], right[1 % len(right)]
            assert len(steps[0].token_ids) == first + 1 + second + 1


def test_the_state_after_a_cycle_is_that_of_plain_decoding(hybrid: TargetModel, copies: TargetCopies) -> None:
    prompt, states = prompt_of(6, 30), []

    def keep(state: SequenceState) -> SequenceState:
        states.append(state)
        return state

    new_state = hybrid.new_state
    hybrid.new_state = lambda max_tokens: keep(new_state(max_tokens))  # type: ignore[method-assign]
    try:
        for kind in KINDS:
            states.clear()
            drafter = drafter_of("dflash2", hybrid)
            mechanisms = Mechanisms("best_first", 16, q_weights=kind)
            decode_steps(hybrid, drafter, prompt, 15, mechanisms=mechanisms, copies=copies)
            plain = decode(hybrid, None, prompt, 40)[0]
            drafted = states[0]
            replayed = new_state(100)
            hybrid.forward(torch.tensor([*prompt, *plain][: drafted.num_tokens]), replayed)
            replayed.commit(drafted.num_tokens)
            assert_same_memory(drafted, replayed)
    finally:
        hybrid.new_state = new_state  # type: ignore[method-assign]


def test_sampled_tokens_are_those_of_plain_decoding(hybrid: TargetModel, copies: TargetCopies) -> None:
    """With one seed: nothing is drawn before the exact pass, which draws as plain decoding does."""
    params, prompt = SamplingParams(max_new_tokens=40, temperature=0.6, top_p=0.95), prompt_of(8, 9)
    plain, _ = decode_steps(hybrid, None, prompt, 30, params=params)
    for name in DRAFTERS:
        for builder in BUILDERS:
            mechanisms = Mechanisms(builder, 13, q_weights="int6")
            tokens, _ = decode_steps(
                hybrid,
                drafter_of(name, hybrid),
                prompt,
                30,
                mechanisms=mechanisms,
                params=params,
                copies=copies,
            )
            assert tokens == plain


def test_control_a_token_of_the_q_pass_that_nobody_verified_is_caught(
    hybrid: TargetModel, copies: TargetCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk that takes the chain C for granted: the answer is another one."""

    def trusting(live: Any, logits: torch.Tensor, tree: DraftTree) -> TreeWalk:
        walk = honest(live, logits, tree)
        cycle = cycles[-1]
        trusted = min(len(cycle.chain), tree.num_nodes - 1)
        if len(walk.rows) > trusted:
            return walk
        rows = list(range(trusted + 1))
        return TreeWalk(rows, [*cycle.chain[:trusted], int(logits[trusted].argmax())])

    from specpilot.sampling import TokenChooser

    cycles: list[QCycle] = []
    honest = TokenChooser.choose_path
    end = QCycle.end

    def watched(cycle: QCycle) -> None:
        cycles.append(cycle)
        end(cycle)

    monkeypatch.setattr(QCycle, "end", watched)
    drafter, prompt = drafter_of("dflash2", hybrid), prompt_of(3, 42)
    plain, _ = decode(hybrid, None, prompt, 60)
    mechanisms = Mechanisms("best_first", 13, q_weights="int6")
    assert decode_steps(hybrid, drafter, prompt, 60, mechanisms=mechanisms, copies=copies)[0] == plain
    monkeypatch.setattr(TokenChooser, "choose_path", trusting)
    assert decode_steps(hybrid, drafter, prompt, 60, mechanisms=mechanisms, copies=copies)[0] != plain


def test_control_a_drafter_that_is_not_rewound_is_noticed(
    hybrid: TargetModel, copies: TargetCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, prompt = drafter_of("dflash2", hybrid), prompt_of(3, 42)
    monkeypatch.setattr(type(drafter), "rewind", lambda *_: None)
    with pytest.raises(ValueError, match="context"):
        decode_steps(
            hybrid, drafter, prompt, 60, mechanisms=Mechanisms("chain", 8, q_weights="int8"), copies=copies
        )


@given(
    seed=st.integers(0, 1000),
    num_nodes=st.integers(1, 20),
    chain=st.lists(st.integers(0, 5), min_size=1, max_size=9),
    spare=st.integers(1, 20),
)
def test_joined_trees(seed: int, num_nodes: int, chain: list[int], spare: int) -> None:
    tree = random_tree(seed, num_nodes, 6)
    root = np.array([chain[-1], *tree.token_ids[1:]])
    subtree = DraftTree(root, tree.parents, tree.logprobs)
    max_nodes = len(chain) + spare
    joined = join_trees(4, chain, subtree, max_nodes)
    assert joined.num_nodes == min(max_nodes, 1 + len(chain) + subtree.num_nodes - 1)
    assert joined.token_ids[0] == 4
    assert joined.token_ids[1 : 1 + len(chain)].tolist() == chain
    assert joined.path(len(chain)) == list(range(len(chain) + 1))
    for node in range(1, joined.num_nodes - len(chain)):
        assert joined.token_ids[len(chain) + node] == subtree.token_ids[node]
        assert joined.parents[len(chain) + node] == subtree.parents[node] + len(chain)
    assert join_trees(4, chain, None, max_nodes).num_nodes == 1 + len(chain)
    with pytest.raises(ValueError, match="chain"):
        join_trees(4, chain, subtree, len(chain))


def ask(engine: ReferenceEngine, drafter: str | None, mechanisms: Mechanisms, **options: Any) -> list[Chunk]:
    ids = engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    params = SamplingParams(**{"max_new_tokens": 40} | options)
    return list(engine.generate(GenerateRequest(ids, params, drafter, mechanisms=mechanisms)))


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def tau(chunks: list[Chunk]) -> float:
    steps = [chunk.step for chunk in chunks if chunk.step is not None]
    return 1 + sum(step.num_correct_drafts for step in steps) / len(steps)


@pytest.mark.parametrize("drafter", ["dflash2", "dspark", "eagle3"])
def test_an_exact_pass_commits_more_tokens_with_a_q_pass(engine: ReferenceEngine, drafter: str) -> None:
    plain = ask(engine, None, Mechanisms(), ignore_eos=True)
    one = ask(engine, drafter, Mechanisms("best_first", 16), ignore_eos=True)
    two = ask(engine, drafter, Mechanisms("best_first", 16, q_weights="w12_view"), ignore_eos=True)
    assert tokens_of(plain) == tokens_of(one) == tokens_of(two)
    assert tau(two) > 1.3 * tau(one)
    steps = [chunk.step for chunk in two if chunk.step is not None]
    assert all(0 < step.num_q_rows <= 16 and step.num_rows <= 16 for step in steps)
    assert all(step.total_us >= step.q_us + step.verify_us for step in steps)
    assert all(step.draft_us > 0 for step in steps)


def test_options_that_change_logits_are_kept(engine: ReferenceEngine) -> None:
    mechanisms = Mechanisms("best_first", 16, q_weights="int8")
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    for options in (
        {"frequency_penalty": 1.5, "repetition_penalty": 1.3},
        {"logit_bias": {50: 5.0, 60: -100.0}},
        {"json_schema": schema},
        {"temperature": 0.9, "seed": 4, "presence_penalty": 1.0},
        {"top_logprobs": 2},
    ):
        plain, drafted = (
            ask(engine, *arm, **options) for arm in ((None, Mechanisms()), ("dflash2", mechanisms))
        )
        assert tokens_of(plain) == tokens_of(drafted)
        assert [entry for chunk in plain for entry in chunk.logprobs] == [
            entry for chunk in drafted for entry in chunk.logprobs
        ]


def test_a_gate_leaves_passes_out(engine: ReferenceEngine) -> None:
    mechanisms = Mechanisms("best_first", 16, q_weights="int8", is_q_gated=True)
    chunks = ask(engine, "suffix", mechanisms, ignore_eos=True, max_new_tokens=60)
    assert tokens_of(chunks) == tokens_of(ask(engine, None, Mechanisms(), ignore_eos=True, max_new_tokens=60))
    gated = ask(engine, "dflash2", mechanisms, ignore_eos=True, max_new_tokens=120)
    passes = [chunk.step.num_q_rows > 0 for chunk in gated if chunk.step is not None]
    assert any(passes) and not all(passes)


def test_requests_with_several_copies_at_once(engine: ReferenceEngine) -> None:
    plain = tokens_of(ask(engine, None, Mechanisms()))
    ids = engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    arms = (
        ("dflash2", Mechanisms("best_first", 16, q_weights="int8")),
        ("dspark", Mechanisms("chain", 16, q_weights="int8")),
        ("eagle3", Mechanisms("best_first", 8, q_weights="w12_view")),
        ("suffix", Mechanisms()),
    )
    answers = [
        engine.generate(GenerateRequest(ids, SamplingParams(max_new_tokens=40), name, mechanisms=mechanisms))
        for name, mechanisms in arms
    ]
    for answer in answers:
        assert tokens_of(list(answer)) == plain


def test_a_copy_that_fails_ends_its_requests_and_no_other(
    engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = engine.copies.q_copy("int6").target
    calls = []

    def fail(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise RuntimeError("broken copy")

    monkeypatch.setattr(broken, "forward_batch", fail)
    ids = engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    params = SamplingParams(max_new_tokens=30)
    victim, other = (
        engine.generate(
            GenerateRequest(ids, params, "dflash2", mechanisms=Mechanisms("best_first", 8, q_weights=kind))
        )
        for kind in ("int6", "int8")
    )
    with pytest.raises(EngineError, match="broken copy"):
        list(victim)
    assert tokens_of(list(other)) == tokens_of(ask(engine, None, Mechanisms(), max_new_tokens=30))
    assert calls


def test_an_answer_that_fills_its_room(hybrid: TargetModel, copies: TargetCopies) -> None:
    """The context ends in the middle of a cycle."""
    prompt = prompt_of(9, SMALL.context_length - 30)
    plain, _ = decode(hybrid, None, prompt, 30)
    for name in DRAFTERS:
        mechanisms = Mechanisms("best_first", 24, q_weights="w12_view")
        tokens, _ = decode_steps(
            hybrid, drafter_of(name, hybrid), prompt, 30, mechanisms=mechanisms, copies=copies
        )
        assert tokens == plain


def test_refusals(hybrid: TargetModel, copies: TargetCopies) -> None:
    drafter = drafter_of("dflash2", hybrid)
    with pytest.raises(Unsupported, match="q_weights"):
        plan_speculation(
            hybrid,
            drafter,
            Mechanisms("best_first", q_weights="int8"),
            BatchMechanisms(node_budget=16),
            copies=copies,
        )
    with pytest.raises(Unsupported, match="q_weights"):
        plan_speculation(hybrid, drafter, Mechanisms(q_weights="int8"))
    with pytest.raises(RequestError, match="drafter"):
        plan_speculation(hybrid, None, Mechanisms(q_weights="int8"), copies=copies)


@pytest.mark.parametrize("kind", KINDS)
def test_with_drafter_blocks_whole_prompts_and_every_builder(kind: QWeights) -> None:
    """Beside the other mechanisms, several requests at a time."""
    batch = BatchMechanisms(has_drafter_blocks=True, whole_prompt_rows=200, prompt_rows=16)
    engine = build_engine(mode="judge", num_threads=1, max_running=4, batch=batch)
    plain = tokens_of(ask(engine, None, Mechanisms()))
    ids = engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    params = SamplingParams(max_new_tokens=40)
    builders: tuple[Builder, ...] = ("best_first", "ddtree", "eagle2", "sequoia")
    for drafter in ("dflash2", "eagle3", "suffix"):
        answers = [
            engine.generate(
                GenerateRequest(
                    ids,
                    params,
                    drafter,
                    mechanisms=Mechanisms(builder, 20, q_weights=kind, has_certified_head=True),
                )
            )
            for builder in builders
        ]
        for answer in answers:
            assert tokens_of(list(answer)) == plain


def test_with_the_wy_form_the_answer_is_near(engine: ReferenceEngine) -> None:
    """The form differs from the path form by rounding; it takes cycles all the same."""
    serve = build_engine(mode="serve", num_threads=1)
    chunks = ask(serve, "dflash2", Mechanisms("best_first", 16, gdn_form="wy", q_weights="int8"))
    assert any(chunk.step is not None and chunk.step.num_q_rows > 0 for chunk in chunks)
    assert tokens_of(chunks)[:8] == tokens_of(ask(engine, None, Mechanisms()))[:8]
