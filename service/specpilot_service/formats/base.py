"""What an endpoint adds to the common flow of ``answers.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from specpilot.engines.base import CancelToken, Chunk
from specpilot_service.planning import ChoicePlan
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.schemas import SpeculationReport, Usage

__all__ = ["AnswerFormat", "AnswerHead", "ChoiceWriter", "finish_reason"]

PartT = TypeVar("PartT")
PartT_co = TypeVar("PartT_co", covariant=True)


@dataclass(frozen=True)
class AnswerHead:
    """What every frame of one answer repeats."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class ChoiceWriter(Protocol[PartT_co]):
    """Writes one choice; made anew for every choice, so it may keep state."""

    def opening(self) -> PartT_co | None:
        """What comes before the first generated token; may be slow (it scores an echoed prompt)."""
        ...

    def part(self, chunk: Chunk) -> PartT_co | None:
        """What a chunk adds; None when nothing of it can be shown yet."""
        ...


class AnswerFormat(Protocol[PartT]):
    """``PartT`` is one choice's share of a stream frame; a whole choice is its parts put together."""

    @property
    def includes_usage(self) -> bool:
        """Whether the stream ends with a frame of usage."""
        ...

    def plan(self, runtime: ServiceRuntime, request_id: str) -> list[ChoicePlan]: ...

    def writer(
        self, runtime: ServiceRuntime, plan: ChoicePlan, cancel: CancelToken
    ) -> ChoiceWriter[PartT]: ...

    def frame(self, head: AnswerHead, part: PartT, report: SpeculationReport | None) -> str:
        """JSON of one stream frame; ``report`` only with the last one, when no usage frame follows."""
        ...

    def usage_frame(self, head: AnswerHead, usage: Usage, report: SpeculationReport) -> str: ...

    def whole(
        self, head: AnswerHead, choices: Sequence[Sequence[PartT]], usage: Usage, report: SpeculationReport
    ) -> str:
        """JSON of the whole answer from the parts of every choice."""
        ...


def finish_reason(chunk: Chunk) -> Literal["stop", "length"] | None:
    """The engine's reason in OpenAI's words; a cancelled answer never gets here."""
    assert chunk.finish_reason != "cancelled"
    return chunk.finish_reason
