"""Runs one planned choice on the engine and keeps the books of the whole request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import cast

from specpilot.engines.base import CancelToken, Chunk, GenerateRequest
from specpilot.errors import EngineError
from specpilot.metrics import AcceptCounter
from specpilot_service.errors import AnswerCut
from specpilot_service.fallback import generate_or_stock
from specpilot_service.planning import ChoicePlan
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.schemas import CompletionTokensDetails, SpeculationReport, Usage

__all__ = ["Tally", "decoding"]


class Tally:
    """Tokens and verify steps of one HTTP request, over all its choices; also feeds the metrics.

    Parameters
    ----------
    arrived_at
        ``time.perf_counter`` seconds at the request's arrival.
    """

    def __init__(self, runtime: ServiceRuntime, plans: list[ChoicePlan], arrived_at: float) -> None:
        self._metrics, self._arrived_at = runtime.metrics, arrived_at
        self._drafter = next((plan.request.drafter for plan in plans if plan.request), None) or "none"
        self._steps = AcceptCounter()
        self._mechanisms: Counter[str] = Counter()
        self._fallback: str | None = None
        # A prompt is paid once, however many choices it has.
        self._num_prompt_tokens = sum(
            len(ids) for ids in {p.prompt_index: p.prompt_ids for p in plans}.values()
        )
        self._num_generated_tokens = self._num_accepted = 0
        self._metrics.prompt_tokens.inc(self._num_prompt_tokens)

    def add(self, chunk: Chunk) -> None:
        if chunk.token_ids and self._num_generated_tokens == 0:
            self._metrics.first_token_seconds.observe(time.perf_counter() - self._arrived_at)
        self._num_generated_tokens += len(chunk.token_ids)
        self._metrics.generated_tokens.labels(self._drafter).inc(len(chunk.token_ids))
        if chunk.step is not None:
            self._steps.add(chunk.step)
            self._mechanisms[chunk.step.mechanism] += 1
            self._fallback = chunk.step.fallback or self._fallback
            # A step cut by a stop or a limit gives fewer tokens than it accepted.
            self._num_accepted += min(chunk.step.num_correct_drafts, len(chunk.token_ids))
            self._metrics.observe_step(self._drafter, chunk.step)

    def usage(self) -> Usage:
        steps = self._steps
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=self._num_generated_tokens,
            total_tokens=self._num_prompt_tokens + self._num_generated_tokens,
            completion_tokens_details=CompletionTokensDetails(
                accepted_prediction_tokens=self._num_accepted,
                rejected_prediction_tokens=steps.num_drafted - self._num_accepted,
            ),
        )

    def report(self) -> SpeculationReport:
        return SpeculationReport(
            drafter=self._drafter,
            num_steps=self._steps.num_steps,
            tau=self._steps.tau,
            mechanisms=dict(self._mechanisms),
            fallback=self._fallback,
        )


@contextmanager
def decoding(
    runtime: ServiceRuntime, request: GenerateRequest | None, cancel: CancelToken, tally: Tally
) -> Iterator[Iterator[Chunk]]:
    """The chunks of one generation: admitted by the engine on entry, given up on exit, however it comes."""
    if request is None:
        yield iter([Chunk((), "", finish_reason="length")])
        return
    chunks = cast("Generator[Chunk, None, None]", generate_or_stock(runtime.engine, request, cancel))
    try:
        yield _checked(chunks, tally)
    finally:
        chunks.close()


def _checked(chunks: Iterator[Chunk], tally: Tally) -> Iterator[Chunk]:
    for chunk in chunks:
        tally.add(chunk)
        if chunk.finish_reason == "cancelled":
            raise AnswerCut
        yield chunk
        if chunk.finish_reason is not None:
            return
    raise EngineError("the engine ended an answer without a finish reason")
