"""Answers with times, and what counts of one that loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specpilot.bench.answer import Answer, TimedChunk, decode_answer
from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, SamplingParams, StepRecord
from specpilot.errors import EngineError
from tests.service.tiny_engine import TinyEngine

STEP = StepRecord(4, 2, 0, 1.0, 1.0, 2.0)


def answer(ids: list[int], sizes: list[int]) -> Answer:
    """One second a chunk."""
    assert sum(sizes) == len(ids)
    chunks = tuple(
        TimedChunk(sum(sizes[: i + 1]), float(i + 1), STEP if i else None) for i in range(len(sizes))
    )
    return Answer(tuple(ids), "", "length", chunks)


def test_whole_answer_counts_without_a_loop() -> None:
    whole = answer(list(range(7)), [1, 3, 3])
    assert whole.before_loop() == whole
    assert (whole.num_tokens, whole.elapsed_s, len(whole.steps)) == (7, 3.0, 2)


@pytest.mark.parametrize(
    ("sizes", "num_tokens", "num_chunks"),
    [
        # 40 different tokens, then the same again: the loop starts at index 40.
        ([1, 39, 20, 20], 40, 2),  # a chunk that begins at 40 is out
        ([1, 38, 21, 20], 60, 3),  # one that begins at 39 is in, with all its tokens and time
        ([80], 80, 1),
    ],
)
def test_chunks_that_begin_inside_the_loop_do_not_count(
    sizes: list[int], num_tokens: int, num_chunks: int
) -> None:
    looping = answer(list(range(40)) * 2, sizes)
    cut = looping.before_loop()
    assert looping.loop_start == 40
    assert (cut.num_tokens, len(cut.chunks), cut.elapsed_s) == (num_tokens, num_chunks, float(num_chunks))
    assert cut.token_ids == looping.token_ids


def test_times_are_those_of_the_clock() -> None:
    engine = TinyEngine()
    ticks = iter(range(1000))
    sampling = SamplingParams(max_new_tokens=6, ignore_eos=True)
    decoded = decode_answer(
        engine, GenerateRequest([84, 111, 109], sampling), clock=lambda: float(next(ticks))
    )
    assert [chunk.elapsed_s for chunk in decoded.chunks] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [chunk.num_tokens for chunk in decoded.chunks] == [1, 2, 3, 4, 5, 6]
    assert decoded.finish_reason == "length" and len(decoded.text) == 6


def test_answer_that_just_stops_is_a_failure() -> None:
    class Unfinished(TinyEngine):
        def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
            yield Chunk((1,), "a")

    with pytest.raises(EngineError, match="finish reason"):
        decode_answer(Unfinished(), GenerateRequest([84]))
