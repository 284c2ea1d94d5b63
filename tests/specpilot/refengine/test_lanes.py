"""Requests in several lanes: answers as alone, and everything that holds for one engine thread holds for two."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, NumericMode, SamplingParams
from specpilot.engines.mechanisms import BatchMechanisms
from specpilot.errors import EngineError, Overloaded
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.lanes import Lanes
from specpilot.refengine.state import SequenceState
from specpilot_kernels.cpu_jit import max_threads, num_threads, set_num_threads
from tests.specpilot.refengine.engine_probe import PATIENCE_S, close, tokens
from tests.specpilot.refengine.test_scheduling import FailingDrafter

pytestmark = pytest.mark.skipif(max_threads() < 2, reason="one CPU runs one lane")


class Steps:
    """Watches the target's forwards of all lanes.

    Attributes
    ----------
    runs
        Thread and sequences of every forward, in the order in which they began.
    most_at_once, most_tokens
        Forwards that ran at the same time; tokens that sequences in them may grow to together.
    before
        Called before each forward, on its thread.
    """

    def __init__(self, engine: ReferenceEngine) -> None:
        self.runs: list[tuple[int, frozenset[int]]] = []
        self.most_at_once = self.most_tokens = 0
        self.before: Callable[[], None] = lambda: None
        self._lock, self._running = threading.Lock(), list[Sequence[SequenceState]]()
        self._states: list[SequenceState] = []  # Kept, so that identities stay unique.
        self._target, self._forward = engine.target, engine.target.forward_batch
        engine.target.forward_batch = self._watched  # type: ignore[method-assign]

    def remove(self) -> None:
        self._target.forward_batch = self._forward  # type: ignore[method-assign]

    @property
    def threads(self) -> set[int]:
        return {thread for thread, _ in self.runs}

    def lanes_of(self, state: int) -> set[int]:
        return {thread for thread, states in self.runs if state in states}

    def _watched(self, ids: Tensor, states: Sequence[SequenceState], **options: Any) -> Any:
        with self._lock:
            self._states += states
            self.runs.append((threading.get_ident(), frozenset(map(id, states))))
            self._running.append(states)
            self.most_at_once = max(self.most_at_once, len(self._running))
            held = sum(state.max_tokens for running in self._running for state in running)
            self.most_tokens = max(self.most_tokens, held)
        try:
            self.before()
            return self._forward(ids, states, **options)
        finally:
            with self._lock:
                self._running = [running for running in self._running if running is not states]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = num_threads()
    yield
    set_num_threads(before)


@pytest.fixture(scope="module", params=["judge", "serve"])
def mode(request: pytest.FixtureRequest) -> NumericMode:
    mode: NumericMode = request.param
    return mode


@pytest.fixture(scope="module")
def shared(mode: NumericMode) -> ReferenceEngine:
    return build_engine(mode=mode, num_threads=2)


@pytest.fixture
def engine() -> ReferenceEngine:
    return build_engine(num_threads=2, max_running=8, max_waiting=8)


@pytest.fixture
def steps(engine: ReferenceEngine) -> Steps:
    return Steps(engine)


def ask(
    num_prompt: int, num_new: int, drafter: str | None = None, temperature: float = 0.0
) -> GenerateRequest:
    ids = [(7 * index + num_prompt) % 4000 + 10 for index in range(num_prompt)]
    sampling = SamplingParams(
        max_new_tokens=num_new, ignore_eos=True, temperature=temperature, seed=num_prompt, top_logprobs=1
    )
    return GenerateRequest(ids, sampling, drafter)


def facts(chunks: Sequence[Chunk]) -> list[object]:
    """Everything but the clock."""
    return [
        (
            chunk.token_ids,
            chunk.text,
            chunk.logprobs,
            chunk.finish_reason,
            chunk.step and (chunk.step.num_drafted, chunk.step.num_correct_drafts),
        )
        for chunk in chunks
    ]


class Meeting:
    """Holds forwards until two lanes stand before one each."""

    def __init__(self, steps: Steps) -> None:
        self._barrier = threading.Barrier(2, action=self.release)
        self._steps = steps
        steps.before = self._wait

    def _wait(self) -> None:
        self._barrier.wait(PATIENCE_S)

    def release(self) -> None:
        self._steps.before = lambda: None


# Answers.


@pytest.mark.parametrize("drafter", [None, "dflash2", "dspark", "eagle3", "suffix"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_eight_in_two_lanes_are_eight_alone(
    shared: ReferenceEngine, drafter: str | None, temperature: float
) -> None:
    asks = [ask(5 + 9 * index, 12, drafter, temperature) for index in range(8)]
    alone = [facts(list(shared.generate(request))) for request in asks]
    steps = Steps(shared)
    try:
        Meeting(steps)
        answers = [shared.generate(request) for request in asks]
        together = [facts(list(answer)) for answer in answers]
    finally:
        steps.remove()
    assert together == alone
    assert len(steps.threads) == 2 and steps.most_at_once == 2


def test_kinds_of_requests_mix(shared: ReferenceEngine) -> None:
    kinds = [
        (None, 0.0),
        ("dflash2", 0.0),
        ("dspark", 0.9),
        ("eagle3", 0.0),
        ("suffix", 0.0),
        ("dflash2", 0.9),
    ]
    asks = [ask(20 + index, 16, drafter, temperature) for index, (drafter, temperature) in enumerate(kinds)]
    text = list(ask(150, 1).prompt_ids)
    alone, scores = [facts(list(shared.generate(request))) for request in asks], shared.score(text, 3)
    for _ in range(3):
        answers = [shared.generate(request) for request in asks]
        assert shared.score(text, 3) == scores
        assert [facts(list(answer)) for answer in answers] == alone


def test_one_request_keeps_one_thread(engine: ReferenceEngine, steps: Steps) -> None:
    for _ in range(3):
        list(engine.generate(ask(100, 20, "dflash2")))
    assert len(steps.threads) == 1 and steps.most_at_once == 1


def test_a_shared_node_budget_keeps_all_requests_in_one_step() -> None:
    engine = build_engine(num_threads=2, batch=BatchMechanisms(node_budget=16))
    steps = Steps(engine)
    answers = [engine.generate(ask(9 + index, 20)) for index in range(4)]
    for answer in answers:
        list(answer)
    assert len(steps.threads) == 1


# Balance.


class Weight:
    """What lanes see of a job."""

    is_over = is_given_up = False

    def __init__(self, num_step_rows: int) -> None:
        self.num_step_rows = num_step_rows


@given(
    weights=st.lists(st.sampled_from([1, 8, 16, 64]), max_size=16),
    num_lanes=st.integers(1, 4),
    over=st.lists(st.booleans(), min_size=16, max_size=16),
)
def test_lanes_differ_by_less_than_a_job(weights: list[int], num_lanes: int, over: list[bool]) -> None:
    """After jobs have ended anywhere and every lane has handed over, none would do better to."""
    lanes = Lanes(num_lanes)
    jobs: list[Any] = [Weight(weight) for weight in weights]
    for job in jobs:
        least = min(lane.num_rows for lane in lanes)
        assert lanes.add(job).num_rows == least + job.num_step_rows
    gone = {id(job) for job, is_over in zip(jobs, over, strict=False) if is_over}
    for lane in lanes:
        lane.jobs = [job for job in lane.jobs if id(job) not in gone]
    left = sorted(id(job) for job in lanes.jobs)
    for _ in range(len(weights) + 1):
        moved = [receiver for lane in lanes for receiver in lanes.hand_over(lane)]
        if not moved:
            break
    assert not moved
    assert sorted(id(job) for job in lanes.jobs) == left
    for lane in lanes:
        for other in lanes:
            assert not any(other.num_rows + job.num_step_rows < lane.num_rows for job in lane.jobs)


def test_a_lane_that_runs_empty_gets_a_request(engine: ReferenceEngine, steps: Steps) -> None:
    """Two short answers stand in one lane and two long ones in the other; one of these moves, and nothing changes."""
    alone = facts(list(engine.generate(ask(5, 300))))
    steps.runs.clear()
    Meeting(steps)
    order = [ask(4, 300), ask(6, 2), ask(5, 300), ask(7, 2)]
    answers = [list(answer) for answer in [engine.generate(request) for request in order]]
    assert facts(answers[2]) == alone
    assert [len(tokens(answer)) for answer in answers] == [300, 2, 300, 2]
    moved = [
        state
        for state in {state for _, states in steps.runs for state in states}
        if len(steps.lanes_of(state)) == 2
    ]
    assert len(moved) == 1


# Limits.


def test_memory_is_bounded_over_all_lanes() -> None:
    engine = build_engine(num_threads=2, max_running=8, max_kv_tokens=300)
    steps = Steps(engine)
    answers = [engine.generate(ask(size - 20, 20)) for size in (120, 90, 80, 60, 140, 30, 45)]
    assert engine.health().num_running < 7
    for answer in answers:
        assert len(tokens(list(answer))) == 20
    assert steps.most_tokens <= 300 and len(steps.threads) == 2


def test_places_are_bounded_over_all_lanes() -> None:
    engine = build_engine(num_threads=2, max_running=3, max_waiting=2)
    steps = Steps(engine)
    hold = threading.Event()

    def wait() -> None:
        hold.wait(PATIENCE_S)

    steps.before = wait
    answers = [engine.generate(ask(3, 6)) for _ in range(5)]
    assert (engine.health().num_running, engine.health().num_waiting) == (3, 2)
    with pytest.raises(Overloaded, match="3 run and 2 wait"):
        engine.generate(ask(3, 6))
    hold.set()
    assert [len(tokens(list(answer))) for answer in answers] == [6] * 5


# Readers that leave.


@pytest.mark.parametrize("how", ["cancel", "close", "forget"])
def test_leaving_both_lanes_frees_the_places_and_changes_nobody_else(
    engine: ReferenceEngine, steps: Steps, how: str
) -> None:
    alone = [facts(list(engine.generate(ask(30 + index, 40, "dflash2")))) for index in range(3)]
    Meeting(steps)
    cancel = CancelToken()
    leaving: list[Any] = [engine.generate(ask(200, 400, "dflash2"), cancel) for _ in range(4)]
    staying = [engine.generate(ask(30 + index, 40, "dflash2")) for index in range(3)]
    for answer in leaving:
        next(answer)
    if how == "cancel":
        cancel.cancel()
    elif how == "close":
        for answer in leaving:
            close(answer)
    else:
        del answer
        leaving.clear()
        gc.collect()
    assert [facts(list(answer)) for answer in staying] == alone
    if how == "cancel":
        assert [list(answer)[-1].finish_reason for answer in leaving] == ["cancelled"] * 4
    assert engine.drain(PATIENCE_S) and engine.health().num_running == 0
    assert len(steps.threads) == 2


# Failures.


@pytest.mark.parametrize("method", ["new_state", "append_context", "propose_many"])
def test_a_failure_ends_its_request_and_none_in_any_lane(engine: ReferenceEngine, method: str) -> None:
    asks = [ask(20 + index, 30, "dflash2") for index in range(6)]
    expected = [tokens(list(engine.generate(request))) for request in asks]
    engine.drafters["dflash2"] = FailingDrafter(engine.drafters["dflash2"], method, 1)
    answers = [engine.generate(request) for request in asks]
    failed = []
    for index, answer in enumerate(answers):
        try:
            assert tokens(list(answer)) == expected[index]
        except EngineError as error:
            assert "broken drafter" in str(error)
            failed.append(index)
    assert len(failed) == 1
    assert engine.health().num_running == 0


def test_a_failed_forward_ends_the_requests_of_its_lane_alone(engine: ReferenceEngine, steps: Steps) -> None:
    expected = [tokens(list(engine.generate(ask(5 + index, 60)))) for index in range(4)]
    first = threading.Lock()

    class Failing(Meeting):
        def release(self) -> None:
            self._steps.before = self._fail_once

        def _fail_once(self) -> None:
            if first.acquire(blocking=False):
                raise MemoryError("no room")

    Failing(steps)
    answers = [engine.generate(ask(5 + index, 60)) for index in range(4)]
    num_failed = 0
    for answer, want in zip(answers, expected, strict=True):
        try:
            assert tokens(list(answer)) == want
        except EngineError as error:
            assert "MemoryError" in str(error)
            num_failed += 1
    assert 1 <= num_failed <= 2
    assert tokens(list(engine.generate(ask(5, 60)))) == expected[0]


# The end.


def test_drain_waits_for_all_lanes(engine: ReferenceEngine, steps: Steps) -> None:
    Meeting(steps)
    answers = [engine.generate(ask(3 + index, 40, "dflash2")) for index in range(6)]
    assert not engine.drain(0.0)
    with pytest.raises(Overloaded, match="shutting down"):
        engine.generate(ask(3, 20))
    assert engine.drain(PATIENCE_S)
    assert [len(tokens(list(answer))) for answer in answers] == [40] * 6
    assert len(steps.threads) == 2


def test_an_engine_that_nobody_holds_ends_all_its_threads() -> None:
    def engine_threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "engine"}

    before = engine_threads()
    engine: ReferenceEngine | None = build_engine(num_threads=2)
    assert engine is not None
    answers = [engine.generate(ask(5, 50)) for _ in range(4)]
    mine = engine_threads() - before
    assert len(mine) == 2
    engine = None
    answers.clear()
    gc.collect()
    for thread in mine:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
