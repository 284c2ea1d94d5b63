"""How an engine spends rows over its requests: shared nodes, drafter blocks, prompt admission; no answer changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from specpilot.draft.step_cost import StepCost
from specpilot.engines.base import Chunk, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, BatchMechanisms, Mechanisms
from specpilot.errors import ConfigError, RequestError
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from tests.oracles.knowing_drafter import KnowingDrafter
from tests.oracles.noisy_drafter import NoisyDrafter
from tests.specpilot.refengine.engine_probe import Probe, tokens
from tests.specpilot.refengine.test_scheduling import Gate

TREE = Mechanisms("best_first")
NUM_TOKENS = 20


@pytest.fixture(scope="module")
def stock() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


def engine_with(batch: BatchMechanisms) -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, batch=batch)


def ask(
    num_prompt: int, drafter: str | None = None, mechanisms: Mechanisms = STOCK, num_new: int = NUM_TOKENS
) -> GenerateRequest:
    ids = [(7 * index * (num_prompt % 5 + 1)) % 4000 + 10 for index in range(num_prompt)]
    params = SamplingParams(max_new_tokens=num_new, ignore_eos=True)
    return GenerateRequest(ids, params, drafter, mechanisms=mechanisms)


def plain_tokens(stock: ReferenceEngine, request: GenerateRequest) -> list[int]:
    plain = replace(request, drafter=None, mechanisms=STOCK)
    return tokens(list(stock.generate(plain)))


def run_together(
    engine: ReferenceEngine, requests: list[GenerateRequest]
) -> tuple[list[list[Chunk]], list[dict[int, int]]]:
    """Chunks of all requests, and the rows of every step by sequence."""
    probe = Probe(engine)
    try:
        answers = [engine.generate(request) for request in requests]
        return [list(answer) for answer in answers], probe.steps
    finally:
        probe.remove()


# Shared node budget.


@pytest.mark.parametrize("budget", [1, 3, 24, 64])
def test_trees_share_the_budget_and_answers_stay(stock: ReferenceEngine, budget: int) -> None:
    requests = [ask(9 + index, "dflash2", TREE) for index in range(4)]
    answers, steps = run_together(engine_with(BatchMechanisms(node_budget=budget)), requests)
    assert [tokens(answer) for answer in answers] == [plain_tokens(stock, one) for one in requests]
    decoding = steps[4:]  # by then all prompts are in
    assert all(sum(step.values()) <= max(budget, len(step)) for step in decoding)
    assert any(len(step) > 1 for step in decoding)
    if budget == 24:
        assert any(len(set(step.values())) > 1 for step in decoding)  # by likelihood, not evenly


@pytest.mark.parametrize(("times_us", "most_rows"), [((1.0, 1e6), 1), ((1.0, 1.0), 24)])
def test_a_share_of_the_budget_stops_by_its_cost(
    stock: ReferenceEngine, times_us: tuple[float, float], most_rows: int
) -> None:
    """Rows that cost all are not worth any; rows that cost nothing leave the budget as the limit."""
    engine = engine_with(BatchMechanisms(node_budget=24))
    engine.step_costs = {"dflash2": StepCost((1, 64), times_us)}
    requests = [ask(9 + index, "dflash2", replace(TREE, is_cost_aware=True)) for index in range(3)]
    answers, steps = run_together(engine, requests)
    assert [tokens(answer) for answer in answers] == [plain_tokens(stock, one) for one in requests]
    rows = [row for step in steps[3:] for row in step.values()]
    assert max(rows) <= most_rows and (most_rows == 1 or max(rows) > 1)


def test_the_budget_is_for_best_first_trees_and_a_request_may_bound_its_share(stock: ReferenceEngine) -> None:
    requests = [
        ask(9, "dflash2", Mechanisms("best_first", 6)),
        ask(10, "dflash2"),
        ask(11),
        ask(12, "dspark", TREE),
    ]
    answers, _ = run_together(engine_with(BatchMechanisms(node_budget=40)), requests)
    assert [tokens(answer) for answer in answers] == [plain_tokens(stock, one) for one in requests]
    rows = [{chunk.step.num_rows for chunk in answer if chunk.step} for answer in answers]
    assert max(rows[0]) == 6 and rows[1] == {8} and rows[2] == {1} and max(rows[3]) > 6


# Drafter blocks.


def test_blocks_grow_with_acceptance_and_shrink_without(stock: ReferenceEngine) -> None:
    engine = engine_with(BatchMechanisms(has_drafter_blocks=True))
    request = ask(12, "noisy", num_new=60)
    known = [*request.prompt_ids, *plain_tokens(stock, replace(request, sampling=replace(request.sampling)))]
    for share_right, expected in ((1.0, {7, 15}), (0.0, {7})):
        engine.drafters["noisy"] = NoisyDrafter(known, share_right)
        chunks = list(engine.generate(request))
        assert tokens(chunks) == known[12:]
        drafted = {chunk.step.num_drafted for chunk in chunks[:-1] if chunk.step is not None}
        assert drafted == expected


def test_a_trees_depth_is_capped_by_the_block(stock: ReferenceEngine) -> None:
    engine = engine_with(BatchMechanisms(has_drafter_blocks=True))
    request = ask(12, "knowing", Mechanisms("best_first", 64), num_new=60)
    known = [*request.prompt_ids, *plain_tokens(stock, request)]
    engine.drafters["knowing"] = KnowingDrafter(known, [0], 4096)
    chunks = list(engine.generate(request))
    assert tokens(chunks) == known[12:]
    assert {chunk.step.depth for chunk in chunks[:-1] if chunk.step is not None} <= {5, 6, 7}
    fixed = replace(request, mechanisms=Mechanisms("best_first", 64, num_positions=3))
    chunks = list(engine.generate(fixed))
    assert {chunk.step.depth for chunk in chunks[:-1] if chunk.step is not None} == {3}


# Prompt admission.

WHOLE = 96


@pytest.mark.parametrize(
    ("num_prompt", "batch", "expected"),
    [
        (WHOLE, BatchMechanisms(), [64, 32]),
        (WHOLE, BatchMechanisms(whole_prompt_rows=WHOLE), [WHOLE]),
        (WHOLE + 1, BatchMechanisms(whole_prompt_rows=WHOLE), [64, 33]),
        (64, BatchMechanisms(whole_prompt_rows=WHOLE), [64]),
        (384, BatchMechanisms(whole_prompt_rows=384), [384]),
        (385, BatchMechanisms(whole_prompt_rows=384, prompt_rows=128), [128, 128, 128, 1]),
        (128, BatchMechanisms(prompt_rows=128), [128]),
        (129, BatchMechanisms(prompt_rows=128), [128, 1]),
        (10, BatchMechanisms(prompt_rows=8), [8, 2]),
    ],
)
@pytest.mark.parametrize("drafter", [None, "dflash2"])
def test_prompts_at_the_borders(
    stock: ReferenceEngine, num_prompt: int, batch: BatchMechanisms, expected: list[int], drafter: str | None
) -> None:
    """Of K, K + 1 and other numbers of tokens: rows of the prompt step by step, and the same answer."""
    request = ask(num_prompt, drafter, num_new=9)
    [answer], steps = run_together(engine_with_rows(batch), [request])
    assert [next(iter(step.values())) for step in steps[: len(expected)]] == expected
    assert tokens(answer) == plain_tokens(stock, request)


def engine_with_rows(batch: BatchMechanisms) -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, max_running=4, batch=batch)


def test_whole_prompts_are_bounded_and_answers_go_on(stock: ReferenceEngine) -> None:
    """Two short prompts and a long one join a running answer. It has its rows in every step, beside at most 64 + 96 of
    prompts; the shortest is in at once, and the next one, for which no room was left, a step later."""
    engine = engine_with_rows(BatchMechanisms(whole_prompt_rows=WHOLE))
    probe = Probe(engine)
    requests = [ask(5, None, num_new=40), *(ask(size, "dflash2", TREE) for size in (90, 95, 300))]
    with Gate(probe, 2) as gate:
        first = engine.generate(requests[0])
        gate.wait()
        others = [engine.generate(request) for request in requests[1:]]
    answers = [list(answer) for answer in (first, *others)]
    probe.remove()
    assert [tokens(answer) for answer in answers] == [plain_tokens(stock, one) for one in requests]
    running, *joined = dict.fromkeys(state for step in probe.steps for state in step)
    rows = [[step[state] for step in probe.steps if state in step] for state in joined]
    assert rows[0][0] == 90 and rows[1][:2] == [32, 63] and rows[2][:6] == [32, 64, 64, 64, 64, 12]
    present = [index for index, step in enumerate(probe.steps) if running in step]
    assert present == list(range(present[0], present[-1] + 1))
    assert all(sum(rows for rows in step.values() if rows > 8) <= 64 + WHOLE for step in probe.steps)


def test_every_prompt_needs_a_row() -> None:
    with pytest.raises(ConfigError, match=r"prompt_rows: got 3 with max_running 8"):
        engine_with(BatchMechanisms(prompt_rows=3))
    for wrong in ({"node_budget": 0}, {"whole_prompt_rows": -1}, {"prompt_rows": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            BatchMechanisms(**wrong)  # type: ignore[arg-type]


# Together.

OPTIONS = {"node_budget": 20, "has_drafter_blocks": True, "whole_prompt_rows": WHOLE, "prompt_rows": 16}


@pytest.mark.parametrize("names", [*itertools.combinations(OPTIONS, 2), tuple(OPTIONS)], ids=" ".join)
def test_options_together_change_no_answer(stock: ReferenceEngine, names: tuple[str, ...]) -> None:
    engine = engine_with(BatchMechanisms(**{name: OPTIONS[name] for name in names}))  # type: ignore[arg-type]
    requests = [
        ask(70, "dflash2", TREE),
        ask(20, "dspark", Mechanisms("best_first", 12, 9)),
        ask(WHOLE + 1, "eagle3"),
        ask(30),
        ask(WHOLE, "eagle3", TREE),
    ]
    answers, _ = run_together(engine, requests)
    assert [tokens(answer) for answer in answers] == [plain_tokens(stock, one) for one in requests]


def test_too_long_a_tree_request_is_refused_by_its_room() -> None:
    engine = build_engine(mode="judge", num_threads=1, max_kv_tokens=100)
    assert len(tokens(list(engine.generate(ask(58, "dflash2", Mechanisms("best_first", 32), 10))))) == 10
    with pytest.raises(RequestError, match="101 tokens"):
        engine.generate(ask(59, "dflash2", Mechanisms("best_first", 32), 10))
