"""The common flow of both endpoints: plan, decode choice after choice, write.

Choices of one request run one after another, so every request holds one place in the engine's queue and a
request for eight choices cannot push eight others back. Everything here runs in a worker thread.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from specpilot.engines.base import CancelToken
from specpilot_service.formats.base import AnswerFormat, AnswerHead
from specpilot_service.generation import Tally, decoding
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.streaming import USAGE_COMMENT, event_frame

__all__ = ["AnswerJob"]

PartT = TypeVar("PartT")


@dataclass(frozen=True)
class AnswerJob:
    """One request on its way through the engine.

    Attributes
    ----------
    arrived_at
        ``time.perf_counter`` seconds.
    tells_usage
        A stream that does not report usage to its client ends with a comment that does, for the gateway in front
        (``USAGE_COMMENT``).
    """

    runtime: ServiceRuntime
    request_id: str
    arrived_at: float
    tells_usage: bool = False

    def stream(self, answer: AnswerFormat[PartT], cancel: CancelToken) -> Generator[bytes, None, None]:
        """Event frames. The first comes after checks and admission: before it, errors have a status."""
        plans = answer.plan(self.runtime, self.request_id)
        tally, head = Tally(self.runtime, plans, self.arrived_at), self._head()
        for plan in plans:
            writer = answer.writer(self.runtime, plan, cancel)
            opening = writer.opening()
            with decoding(self.runtime, plan.request, cancel, tally) as chunks:
                if opening is not None:
                    yield event_frame(answer.frame(head, opening, None))
                for chunk in chunks:
                    part = writer.part(chunk)
                    if part is None:
                        continue
                    is_last = chunk.finish_reason is not None and plan is plans[-1]
                    report = tally.report() if is_last and not answer.includes_usage else None
                    yield event_frame(answer.frame(head, part, report))
        if answer.includes_usage:
            yield event_frame(answer.usage_frame(head, tally.usage(), tally.report()))
        elif self.tells_usage:
            yield USAGE_COMMENT + tally.usage().model_dump_json().encode() + b"\n\n"

    def whole(self, answer: AnswerFormat[PartT], cancel: CancelToken) -> Generator[bytes, None, None]:
        """The whole answer as one JSON body."""
        plans = answer.plan(self.runtime, self.request_id)
        tally = Tally(self.runtime, plans, self.arrived_at)
        choices: list[list[PartT]] = []
        for plan in plans:
            writer = answer.writer(self.runtime, plan, cancel)
            parts = [writer.opening()]
            with decoding(self.runtime, plan.request, cancel, tally) as chunks:
                parts += [writer.part(chunk) for chunk in chunks]
            choices.append([part for part in parts if part is not None])
        yield answer.whole(self._head(), choices, tally.usage(), tally.report()).encode()

    def _head(self) -> AnswerHead:
        return AnswerHead(
            id=self.request_id,
            created=int(time.time()),
            model=self.runtime.description.model_id,
            system_fingerprint=self.runtime.fingerprint,
        )
