"""Requests that run together get what they get alone, whoever else comes, goes or is cancelled (judge mode)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, SamplingParams
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from tests.specpilot.refengine.engine_probe import Probe, tokens

QUESTIONS = (
    "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?",
    "Write a Python function `add(a, b)` that returns the sum of two numbers.",
    "Solve $2x + 3 = 11$ for $x$.",
    "Tell me something about rivers.",
    "Hi",
    "Write a short story about a fox that learns to count, and explain in the end what it has counted and why. "
    * 3,
)
NUM_TOKENS = 24


@dataclass(frozen=True)
class Ask:
    """What is asked for; hashable, so that the answer alone is made once."""

    question: int
    drafter: str | None
    temperature: float = 0.0
    seed: int = 0
    max_new_tokens: int = NUM_TOKENS


ASKS = st.builds(
    Ask,
    st.integers(0, len(QUESTIONS) - 1),
    st.sampled_from([None, "dflash2"]),
    st.sampled_from([0.0, 0.0, 0.8]),
    st.integers(0, 2),
    st.sampled_from([1, 7, NUM_TOKENS]),
)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


@pytest.fixture
def probe(engine: ReferenceEngine) -> Iterator[Probe]:
    probe = Probe(engine)
    yield probe
    probe.remove()


def request_of(engine: ReferenceEngine, ask: Ask) -> GenerateRequest:
    ids = engine.apply_chat_template([{"role": "user", "content": QUESTIONS[ask.question]}])
    sampling = SamplingParams(
        max_new_tokens=ask.max_new_tokens,
        temperature=ask.temperature,
        seed=ask.seed,
        ignore_eos=True,
        top_logprobs=1,
    )
    return GenerateRequest(ids, sampling, ask.drafter)


@functools.cache
def alone(engine: ReferenceEngine, ask: Ask) -> list[Chunk]:
    assert engine.health().num_running == 0
    return list(engine.generate(request_of(engine, ask)))


def assert_equal_answers(got: list[Chunk], expected: list[Chunk]) -> None:
    """Everything but the clock: tokens, text, steps and log-probabilities."""
    for one, other in zip(got, expected, strict=True):
        assert (one.token_ids, one.text, one.finish_reason) == (
            other.token_ids,
            other.text,
            other.finish_reason,
        )
        assert one.logprobs == other.logprobs
        assert (one.step is None) == (other.step is None)
        if one.step is not None and other.step is not None:
            assert one.step.num_drafted == other.step.num_drafted
            assert one.step.num_correct_drafts == other.step.num_correct_drafts


@pytest.mark.parametrize("drafter", [None, "dflash2"])
def test_eight_together_are_eight_alone(engine: ReferenceEngine, probe: Probe, drafter: str | None) -> None:
    asks = [Ask(index % len(QUESTIONS), drafter) for index in range(8)]
    expected = [alone(engine, ask) for ask in asks]
    together = [engine.generate(request_of(engine, ask)) for ask in asks]
    answers = [list(answer) for answer in together]
    for got, want in zip(answers, expected, strict=True):
        assert_equal_answers(got, want)
    assert max(len(step) for step in probe.steps) == 8  # otherwise nothing ran together


def test_drafters_samplers_and_seeds_mix(engine: ReferenceEngine, probe: Probe) -> None:
    asks = [
        Ask(question, drafter, temperature, seed)
        for question, (drafter, temperature, seed) in enumerate(
            [
                (None, 0.0, 0),
                ("dflash2", 0.0, 0),
                (None, 0.9, 1),
                ("dflash2", 0.9, 1),
                ("dflash2", 0.9, 2),
                (None, 0.9, 2),
            ]
        )
    ]
    expected = [alone(engine, ask) for ask in asks]
    together = [engine.generate(request_of(engine, ask)) for ask in asks]
    for answer, want in zip(together, expected, strict=True):
        assert_equal_answers(list(answer), want)
    kinds = [set(step.values()) for step in probe.steps]
    assert any({1, 8} <= kind for kind in kinds)  # plain and verify rows in one forward


def test_speculation_changes_no_greedy_token_in_a_batch(engine: ReferenceEngine) -> None:
    asks = [Ask(question, drafter) for question in range(4) for drafter in (None, "dflash2")]
    answers = [tokens(list(answer)) for answer in [engine.generate(request_of(engine, ask)) for ask in asks]]
    assert answers[0::2] == answers[1::2]
    assert len({tuple(answer) for answer in answers}) == 4


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_arrivals_and_cancellations_change_nothing(engine: ReferenceEngine, data: st.DataObject) -> None:
    """Requests come before any step, and each may be cancelled before any other."""
    plan = data.draw(
        st.lists(st.tuples(ASKS, st.integers(0, 12), st.none() | st.integers(0, 20)), min_size=2, max_size=9)
    )
    expected = [alone(engine, ask) for ask, _, _ in plan]
    answers: dict[int, Iterator[Chunk]] = {}
    cancels = [CancelToken() for _ in plan]

    def before_step(num_done: int) -> None:
        for index, (ask, arrival, cancelled) in enumerate(plan):
            if num_done >= arrival and index not in answers:
                answers[index] = engine.generate(request_of(engine, ask), cancels[index])
            if cancelled is not None and num_done >= arrival + cancelled:
                cancels[index].cancel()

    probe = Probe(engine)
    probe.before_step = before_step
    try:
        # Keeps the steps coming until the last request has arrived.
        pacemaker = list(engine.generate(request_of(engine, Ask(4, None, max_new_tokens=16))))
    finally:
        probe.remove()
    assert len(answers) == len(plan) and pacemaker[-1].finish_reason == "length"
    for index, (_, _, cancelled) in enumerate(plan):
        got = list(answers[index])
        if got[-1].finish_reason == "cancelled":
            assert cancelled is not None
            got = [chunk for chunk in got if chunk.token_ids]
            assert tokens(got) == tokens(expected[index])[: len(tokens(got))]
        else:
            assert_equal_answers(got, expected[index])
    assert engine.health().num_running == engine.health().num_waiting == 0


def test_scores_in_company_are_scores_alone(engine: ReferenceEngine, probe: Probe) -> None:
    text = engine.tokenize(
        "The train leaves at nine and arrives at half past ten, so it is on its way for 90 minutes. " * 4
    )
    expected = engine.score(text, 3)
    num_alone = len(probe.steps)
    streams = [engine.generate(request_of(engine, Ask(question, "dflash2"))) for question in range(3)]
    assert engine.score(text, 3) == expected
    assert any(len(step) == 4 for step in probe.steps[num_alone:])
    for question, stream in enumerate(streams):
        assert tokens(list(stream)) == tokens(alone(engine, Ask(question, "dflash2")))
