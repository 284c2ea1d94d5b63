"""Who runs when: fairness in steps and rows, limits, readers that leave or lag, failures, the end. Nothing is timed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.engines.base import CancelToken, GenerateRequest, SamplingParams
from specpilot.errors import Cancelled, ConfigError, EngineError, Overloaded, RequestError
from specpilot.models.build import build_engine
from specpilot.refengine.batch_step import plan_step
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.jobs import MAX_UNREAD, PROMPT_ROWS
from specpilot.refengine.model import TargetModel
from specpilot.refengine.scheduler import Limits
from specpilot.refengine.scoring import Scoring
from tests.specpilot.refengine.engine_probe import PATIENCE_S, Probe, close, tokens
from tests.specpilot.refengine.random_target import SMALL, random_tensors


@pytest.fixture(scope="module")
def small() -> TargetModel:
    return TargetModel(SMALL, random_tensors(SMALL), "judge")


@pytest.fixture
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, max_running=4, max_waiting=3)


@pytest.fixture
def probe(engine: ReferenceEngine) -> Probe:
    return Probe(engine)


def ask(num_prompt: int, num_new: int, drafter: str | None = None) -> GenerateRequest:
    ids = [(7 * index) % 4000 + 10 for index in range(num_prompt)]
    return GenerateRequest(ids, SamplingParams(max_new_tokens=num_new, ignore_eos=True), drafter)


class Gate:
    """Holds an engine before a step, until the block ends. A later gate may be made while an earlier one holds."""

    def __init__(self, probe: Probe, before_step: int) -> None:
        self._at, self._is_reached, self._is_open = before_step, threading.Event(), threading.Event()
        probe.before_step = self._wait

    def _wait(self, num_done: int) -> None:
        if num_done == self._at:
            self._is_reached.set()
            assert self._is_open.wait(PATIENCE_S)

    def wait(self) -> None:
        """Until the engine stands before the step."""
        assert self._is_reached.wait(PATIENCE_S)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open.set()


# Sharing of rows.


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(1, 200), max_size=20), num_decoding=st.integers(0, 3))
def test_prompts_share_the_rows_of_a_step(small: TargetModel, lengths: list[int], num_decoding: int) -> None:
    """All rows are used, no prompt gets more than it needs, and none less than an equal share unless it needs less."""
    jobs = [Scoring(small, [1] * (length + 1), 1, 0, CancelToken()) for length in lengths]
    for job in jobs:
        job.start()
    plan = plan_step(jobs)
    shares = [dict((id(job), rows) for job, rows in plan)[id(job)] for job in jobs]
    assert sum(shares) == min(PROMPT_ROWS, sum(lengths))
    for length, share in zip(lengths, shares, strict=True):
        assert 1 <= share <= length
        assert share >= min(length, PROMPT_ROWS // len(lengths))


def test_a_long_prompt_delays_no_running_answer(engine: ReferenceEngine, probe: Probe) -> None:
    """Three answers run when 2,000 tokens join: each gets its rows in every step, beside at most 64 of the prompt."""
    with Gate(probe, 0):
        streams = [engine.generate(ask(9, 60, drafter)) for drafter in (None, None, "dflash2")]
        gate = Gate(probe, 5)
    with gate:
        gate.wait()
        late = engine.generate(ask(2000, 2))
    answers = [list(stream) for stream in streams]
    assert [len(tokens(answer)) for answer in answers] == [60] * 3
    list(late)
    first_states = set(probe.steps[4])
    joined = [index for index, step in enumerate(probe.steps) if max(step.values()) > 8]
    assert len(joined) >= 2000 // PROMPT_ROWS
    num_beside = 0
    for step in probe.steps[1:]:
        prompt_rows = sum(rows for state, rows in step.items() if state not in first_states)
        assert prompt_rows <= PROMPT_ROWS
        if prompt_rows and first_states <= set(step):
            num_beside += 1
    assert num_beside >= 10
    # An answer runs in every step from its first one to its last one.
    for state in first_states:
        present = [index for index, step in enumerate(probe.steps) if state in step]
        assert present == list(range(present[0], present[-1] + 1))
    assert len([step for step in probe.steps if list(step.values()).count(1) == 2]) >= 50


def test_a_short_prompt_does_not_wait_for_a_long_one(engine: ReferenceEngine, probe: Probe) -> None:
    with Gate(probe, 2) as gate:
        long = engine.generate(ask(3000, 1))
        gate.wait()
        short = engine.generate(ask(100, 1))
    list(short)
    [long_state] = probe.steps[0]
    beside = [step for step in probe.steps if len(step) == 2]
    assert len(beside) == -(-100 // (PROMPT_ROWS // 2))
    assert sum(rows for step in beside for state, rows in step.items() if state != long_state) == 100
    assert len(list(long)) == 1


def test_scoring_does_not_stop_streams(engine: ReferenceEngine, probe: Probe) -> None:
    stream = engine.generate(ask(9, 60))
    engine.score(list(ask(1000, 1).prompt_ids), 1)
    list(stream)
    both = [step for step in probe.steps if len(step) == 2][1:]  # in the first one both may run prompts
    assert len(both) >= 1000 // PROMPT_ROWS - 2
    assert all(1 in step.values() and max(step.values()) <= PROMPT_ROWS for step in both)


# Limits.


def test_places_are_given_in_order_and_the_queue_is_bounded(engine: ReferenceEngine, probe: Probe) -> None:
    with Gate(probe, 0):
        answers = [engine.generate(ask(3, 6)) for _ in range(7)]
        assert (engine.health().num_running, engine.health().num_waiting) == (4, 3)
        with pytest.raises(Overloaded, match="4 run and 3 wait"):
            engine.generate(ask(3, 6))
        with pytest.raises(Overloaded):
            engine.score([1, 2, 3], 1)
    assert [len(tokens(list(answer))) for answer in answers] == [6] * 7
    assert max(len(step) for step in probe.steps) == 4
    order = [state for step in probe.steps for state in step]
    assert list(dict.fromkeys(order)) == list(dict.fromkeys(sorted(order, key=order.index)))
    assert engine.generate(ask(3, 1))


def test_memory_is_bounded_and_nobody_overtakes() -> None:
    """Room for 300 tokens: 200 and 50 run, 150 wait, and 10 wait behind them though they would fit."""
    engine = build_engine(mode="judge", num_threads=1, max_running=4, max_kv_tokens=300)
    probe = Probe(engine)
    with pytest.raises(RequestError, match=r"up to 301 tokens, expected at most 300.*max_kv_tokens"):
        engine.generate(ask(1, 300))
    with pytest.raises(RequestError, match="max_kv_tokens"):
        engine.score([1] * 301, 1)
    with Gate(probe, 0):
        sizes = (200, 50, 150, 10)
        answers = [engine.generate(ask(size - 5, 5)) for size in sizes]
        assert (engine.health().num_running, engine.health().num_waiting) == (2, 2)
    for answer in answers:
        assert len(tokens(list(answer))) == 5
    firsts: dict[int, int] = {}
    for index, step in enumerate(probe.steps):
        for state in step:
            firsts.setdefault(state, index)
    begun = list(firsts.values())
    assert begun == sorted(begun) and begun[2] > 5
    states = {id(state): state for state in probe._states}
    for step in probe.steps:
        assert sum(states[state].max_tokens for state in step) <= 300


def test_a_drafter_counts_the_room_its_steps_need() -> None:
    engine = build_engine(mode="judge", num_threads=1, max_kv_tokens=107)
    assert len(tokens(list(engine.generate(ask(90, 10))))) == 10
    with pytest.raises(RequestError, match="108 tokens"):
        engine.generate(ask(90, 10, "dflash2"))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((0, 1, 1), "max_running"),
        ((65, 1, 1), "max_running"),
        ((1, -1, 1), "max_waiting"),
        ((1, 1, 0), "max_kv_tokens"),
    ],
)
def test_limits_that_cannot_be_are_refused(limits: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Limits(*limits)


# Readers that leave.


@pytest.mark.parametrize("how", ["cancel", "close", "forget"])
@pytest.mark.parametrize("phase", ["before the first step", "prompt", "decoding"])
def test_leaving_frees_the_place_before_the_next_step(
    engine: ReferenceEngine, probe: Probe, phase: str, how: str
) -> None:
    step = {"before the first step": 0, "prompt": 3, "decoding": 20}[phase]
    cancel = CancelToken()
    with Gate(probe, step) as gate:
        answers: list[Any] = [engine.generate(ask(600, 300, "dflash2"), cancel)]
        stays = engine.generate(ask(5, 60))
        gate.wait()
        if how == "cancel":
            cancel.cancel()
        elif how == "close":
            close(answers[0])
        else:
            answers.clear()
            gc.collect()
        if how != "cancel":
            assert engine.health().num_running == 1
    assert len(tokens(list(stays))) == 60
    # The step that was held may still have it; no later one does.
    assert all(len(later) == 1 for later in probe.steps[step + 1 :])
    if how == "cancel":
        assert [chunk.finish_reason for chunk in answers[0]] == ["cancelled"]
    elif how == "close":
        assert list(answers[0]) == []
    assert engine.health().num_running == 0


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_leaving_while_waiting(engine: ReferenceEngine, probe: Probe, how: str) -> None:
    cancel = CancelToken()
    with Gate(probe, 0):
        running = [engine.generate(ask(3, 5)) for _ in range(4)]
        leaves, stays = engine.generate(ask(3, 5), cancel), engine.generate(ask(3, 5))
        if how == "cancel":
            cancel.cancel()
            assert next(leaves).finish_reason == "cancelled"
        else:
            close(leaves)
        assert (engine.health().num_running, engine.health().num_waiting) == (4, 1)
    for answer in (*running, stays):
        assert len(tokens(list(answer))) == 5
    assert len({state for step in probe.steps for state in step}) == 5


def test_a_waiting_reader_learns_that_its_request_is_cancelled(engine: ReferenceEngine, probe: Probe) -> None:
    """It blocks in ``next`` of a request that waits; a score that runs ends likewise."""
    cancel = CancelToken()
    running = [engine.generate(ask(3, 400)) for _ in range(4)]
    waiting = engine.generate(ask(3, 5), cancel)
    reasons: list[object] = []
    reader = threading.Thread(target=lambda: reasons.extend(chunk.finish_reason for chunk in waiting))
    reader.start()
    cancel.cancel()
    reader.join(PATIENCE_S)
    assert reasons == ["cancelled"]
    for answer in running:
        close(answer)
    cancel = CancelToken()
    probe.before_step = lambda num_done: cancel.cancel()
    with pytest.raises(Cancelled):
        engine.score([5] * 500, 1, cancel)
    assert engine.health().num_running == 0


# Readers that lag.


def test_a_slow_reader_rests_alone_and_keeps_little(engine: ReferenceEngine, probe: Probe) -> None:
    expected = tokens(list(engine.generate(ask(5, 200))))
    slow = engine.generate(ask(5, 200))
    for _ in range(3):
        assert tokens(list(engine.generate(ask(5, 200)))) == expected
    assert engine.health().num_running == 1
    job = slow._job  # type: ignore[attr-defined]
    assert job.outbox._items.qsize() == MAX_UNREAD
    assert tokens(list(slow)) == expected


def test_a_resting_request_can_be_cancelled(engine: ReferenceEngine, probe: Probe) -> None:
    cancel = CancelToken()
    slow = engine.generate(ask(5, 200), cancel)
    list(engine.generate(ask(5, 200)))
    assert engine.health().num_running == 1
    cancel.cancel()
    assert engine.drain(PATIENCE_S)
    assert next(slow).finish_reason == "cancelled"


# Failures.


class FailingDrafter:
    """The bundled drafter, which fails for one request from the given call on."""

    def __init__(self, inner: Any, method: str, on_call: int) -> None:
        self._inner, self._method, self._calls_left = inner, method, on_call
        self._victim: object = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name != self._method:
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            state = arguments[0]
            if name != "new_state":
                self._victim = self._victim or state
            if name == "new_state" or state is self._victim:
                self._calls_left -= 1
                if self._calls_left == 0 or (self._calls_left < 0 and name != "new_state"):
                    raise RuntimeError("broken drafter")
            return attribute(*arguments, **options)

        return call


@pytest.mark.parametrize(
    ("method", "on_call"), [("new_state", 1), ("append_context", 1), ("append_context", 4), ("propose", 3)]
)
def test_a_failure_ends_its_request_and_no_other(engine: ReferenceEngine, method: str, on_call: int) -> None:
    prompts = [ask(20 + index, 30, "dflash2") for index in range(3)]
    plain = ask(11, 30)
    expected = [tokens(list(engine.generate(request))) for request in (*prompts, plain)]
    engine.drafters["dflash2"] = FailingDrafter(engine.drafters["dflash2"], method, on_call)
    answers = [engine.generate(request) for request in (*prompts, plain)]
    with pytest.raises(EngineError, match="RuntimeError: broken drafter"):
        list(answers[0])
    assert list(answers[0]) == []
    assert [tokens(list(answer)) for answer in answers[1:]] == expected[1:]
    assert engine.health().num_running == 0


def test_a_failed_forward_ends_its_requests_and_the_engine_goes_on(
    engine: ReferenceEngine, probe: Probe
) -> None:
    def fail_once(num_done: int) -> None:
        if num_done == 10:
            probe.before_step = lambda num_done: None
            raise MemoryError("no room")

    probe.before_step = fail_once
    answers = [engine.generate(ask(5, 30)) for _ in range(2)]
    for answer in answers:
        with pytest.raises(EngineError, match="MemoryError"):
            list(answer)
    assert len(tokens(list(engine.generate(ask(5, 30))))) == 30


# The end.


def test_drain_finishes_what_runs_and_waits_and_refuses_the_rest(
    engine: ReferenceEngine, probe: Probe
) -> None:
    with Gate(probe, 2) as gate:
        answers = [engine.generate(ask(3, 20)) for _ in range(6)]
        gate.wait()
        assert not engine.drain(0.01)
        assert engine.health().is_draining
        with pytest.raises(Overloaded, match="shutting down"):
            engine.generate(ask(3, 20))
        with pytest.raises(Overloaded, match="shutting down"):
            engine.score([1, 2], 1)
    assert engine.drain(PATIENCE_S)
    assert [len(tokens(list(answer))) for answer in answers] == [20] * 6


def test_an_engine_that_nobody_holds_ends_its_thread() -> None:
    def engine_threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "engine"}

    before = engine_threads()
    engine: ReferenceEngine | None = build_engine(mode="judge", num_threads=1)
    assert engine is not None
    answer: Iterator[Any] | None = engine.generate(ask(5, 50))
    [thread] = engine_threads() - before
    engine = None
    gc.collect()
    assert answer is not None and len(list(islice(answer, 10))) == 10  # the answer holds it
    answer = None
    gc.collect()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
