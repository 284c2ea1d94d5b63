"""Both arms run on the same prompts, in turn, and one row comes out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specpilot.bench.answer import Answer, TimedChunk
from specpilot.bench.pairs import BenchOptions, Pair, run_pairs
from specpilot.bench.rows import rate_ratio, summarise
from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, StepRecord
from specpilot.errors import ConfigError, RequestError
from specpilot.requests.reading import BenchRequest
from tests.service.tiny_engine import TinyEngine

REQUESTS = [
    BenchRequest("one", ("Tom has 3 apples",)),
    BenchRequest("two", ("The owl", "And then?")),
    BenchRequest("three", ("The naïve",)),
]
OPTIONS = BenchOptions("bigram", max_new_tokens=24)


class RecordingEngine(TinyEngine):
    def __init__(self) -> None:
        super().__init__()
        self.requests: list[GenerateRequest] = []

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        self.requests.append(request)
        return super().generate(request, cancel)


def test_arms_alternate_and_share_prompts() -> None:
    engine = RecordingEngine()
    done: list[int] = []
    results = run_pairs(engine, REQUESTS, OPTIONS, lambda: done.append(1))
    assert len(done) == 3 and [len(pairs) for pairs in results] == [1, 2, 1]
    measured = engine.requests[2:]  # after one warm-up an arm
    assert [r.drafter for r in measured] == [None, "bigram", "bigram", None, "bigram", None, None, "bigram"]
    for first, second in zip(measured[::2], measured[1::2], strict=True):
        assert list(first.prompt_ids) == list(second.prompt_ids)
        assert first.sampling == second.sampling
    pairs = results[1]
    history = [{"role": "user", "content": "The owl"}, {"role": "assistant", "content": pairs[0].plain.text}]
    expected = engine.apply_chat_template([*history, {"role": "user", "content": "And then?"}])
    assert pairs[1].prompt_ids == tuple(expected)


def test_row_of_a_real_run() -> None:
    summary = summarise(run_pairs(TinyEngine(), REQUESTS, OPTIONS), OPTIONS)
    assert (summary.num_requests, summary.num_answers, summary.num_diverged) == (3, 4, 0)
    assert summary.tau is not None and summary.tau > 1
    assert summary.tau == pytest.approx(1 + sum(summary.accept_by_position))
    assert summary.tok_s > 0 and summary.ar_tok_s > 0 and summary.speedup_over_ar > 0
    assert set(summary.step_us) == {"plain", "speculative"}


def test_seeds_differ_by_request_and_agree_in_a_pair() -> None:
    engine = RecordingEngine()
    run_pairs(engine, REQUESTS, BenchOptions("bigram", max_new_tokens=4, temperature=1.0, seed=10))
    assert [r.sampling.seed for r in engine.requests[2:]] == [10, 10, 11, 11, 11, 11, 12, 12]


def test_turns_need_the_chat_template() -> None:
    with pytest.raises(RequestError, match="two"):
        run_pairs(TinyEngine(), REQUESTS, BenchOptions("bigram", is_chat=False))
    raw = run_pairs(TinyEngine(), REQUESTS[:1], BenchOptions("bigram", is_chat=False, max_new_tokens=4))
    assert raw[0][0].prompt_ids == tuple(b"Tom has 3 apples")


def test_failing_request_is_named() -> None:
    long = BenchRequest("long-one", ("apple " * 1000,))
    with pytest.raises(RequestError, match="long-one") as caught:
        run_pairs(TinyEngine(), [REQUESTS[0], long], OPTIONS)
    assert caught.value.code == "context_length_exceeded"


def test_plain_against_plain_is_refused() -> None:
    with pytest.raises(ConfigError, match="none"):
        BenchOptions("none")


def timed(ids: list[int], size: int, seconds_a_chunk: float, num_correct: int = 0) -> Answer:
    """Chunks of ``size`` tokens, one step each."""
    step = StepRecord(3, num_correct, 0, 1.0, 1.0, 2.0)
    ends = range(size, len(ids) + 1, size)
    chunks = tuple(TimedChunk(end, seconds_a_chunk * (i + 1), step) for i, end in enumerate(ends))
    return Answer(tuple(ids), "", "length", chunks)


def test_speedup_is_the_geometric_mean_of_rate_ratios() -> None:
    ids = list(range(8))
    fast, slow = timed(ids, 2, 1.0), timed(ids, 1, 1.0)  # 2 and 1 tokens a second
    faster = timed(ids, 8, 1.0)  # 8 tokens a second
    assert rate_ratio([[fast]], [[slow]]) == pytest.approx(2.0)
    assert rate_ratio([[fast], [faster]], [[slow], [slow]]) == pytest.approx(4.0)


def test_loops_are_cut_unless_told_otherwise() -> None:
    loop = list(range(40)) * 3
    pair = Pair((1,), timed(loop, 1, 1.0), timed(loop, 4, 1.0, num_correct=3))
    other = Pair((1,), timed(list(range(40)), 1, 1.0), timed(list(range(40)), 4, 1.0, num_correct=0))
    cut = summarise([[pair], [other]], BenchOptions("x"))
    assert (cut.num_steps, cut.num_tokens, cut.loop_share) == (20, 80, 0.5)
    assert cut.tau == pytest.approx(1 + (10 * 3 + 10 * 0) / 20)
    assert cut.accept_by_position == (0.5, 0.5, 0.5)
    whole = summarise([[pair], [other]], BenchOptions("x", has_loop_cut=False))
    assert (whole.num_steps, whole.num_tokens, whole.loop_share) == (40, 160, 0.5)
    assert whole.tau == pytest.approx(1 + (30 * 3) / 40)


def test_diverged_answers_are_counted() -> None:
    ids = list(range(8))
    pair = Pair((1,), timed(ids, 1, 1.0), timed([*ids[:7], 99], 1, 1.0))
    assert summarise([[pair]], BenchOptions("x")).num_diverged == 1
