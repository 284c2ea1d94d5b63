"""One decoded answer with the time of every chunk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from specpilot.bench.loops import find_loop_start
from specpilot.engines.base import Engine, FinishReason, GenerateRequest, StepRecord
from specpilot.errors import EngineError

__all__ = ["Answer", "TimedChunk", "decode_answer"]


@dataclass(frozen=True)
class TimedChunk:
    """One chunk: tokens of the answer up to its end, seconds since the request was handed in, its step."""

    num_tokens: int
    elapsed_s: float
    step: StepRecord | None


@dataclass(frozen=True)
class Answer:
    """A complete answer; ``num_tokens`` and ``elapsed_s`` count its chunks, prefill included."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    chunks: tuple[TimedChunk, ...]

    @property
    def num_tokens(self) -> int:
        return self.chunks[-1].num_tokens if self.chunks else 0

    @property
    def elapsed_s(self) -> float:
        return self.chunks[-1].elapsed_s if self.chunks else 0.0

    @property
    def steps(self) -> list[StepRecord]:
        return [chunk.step for chunk in self.chunks if chunk.step is not None]

    @property
    def loop_start(self) -> int | None:
        return find_loop_start(self.token_ids)

    def before_loop(self) -> Answer:
        """The chunks that begin before the answer repeats itself; ids and text stay whole.

        The last chunk kept may reach into the loop; its time does too, so rates stay honest.
        """
        loop_start = self.loop_start
        if loop_start is None:
            return self
        begins = (0, *(chunk.num_tokens for chunk in self.chunks[:-1]))
        kept = [chunk for begin, chunk in zip(begins, self.chunks, strict=True) if begin < loop_start]
        return replace(self, chunks=tuple(kept))


def decode_answer(
    engine: Engine,
    request: GenerateRequest,
    clock: Callable[[], float] = time.perf_counter,
    began: float | None = None,
) -> Answer:
    """Decode ``request`` to its end. ``clock`` gives seconds; times count from ``began``, or from now."""
    began = clock() if began is None else began
    token_ids: list[int] = []
    texts: list[str] = []
    chunks: list[TimedChunk] = []
    finish_reason: FinishReason | None = None
    for chunk in engine.generate(request):
        token_ids += chunk.token_ids
        texts.append(chunk.text)
        chunks.append(TimedChunk(len(token_ids), clock() - began, chunk.step))
        finish_reason = chunk.finish_reason
    if finish_reason is None or finish_reason == "cancelled":
        raise EngineError(
            f"the engine ended an answer with finish reason {finish_reason!r}, expected stop or length"
        )
    return Answer(tuple(token_ids), "".join(texts), finish_reason, tuple(chunks))
