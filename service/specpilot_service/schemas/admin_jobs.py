"""Jobs of the admin API: checks that run beside the service at low priority."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from specpilot_service.schemas.base import PlainText, RequestModel, ResponseModel

__all__ = [
    "CheckRequest",
    "JobKindView",
    "JobList",
    "JobOrigin",
    "JobProgress",
    "JobRequest",
    "JobState",
    "JobView",
]

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
"""``succeeded`` means that there is a result; whether the check passed is in the result."""

JobOrigin = Literal["operator", "schedule", "gate"]

_Reason = Annotated[PlainText, Field(description="why; kept in the audit log")]


class CheckRequest(RequestModel):
    """Begin a check now."""

    options: dict[str, Any] = Field(
        default={}, description="of this kind of check; an unknown one is refused"
    )
    reason: _Reason


class JobRequest(CheckRequest):
    kind: Annotated[PlainText, Field(max_length=64)]


class JobProgress(ResponseModel):
    """``done`` of ``total`` in units of the job's own; ``total`` is null while it is not known."""

    done: float = 0.0
    total: float | None = None
    message: str = ""


class JobView(ResponseModel):
    """``result`` has at least ``passed`` (true, false, null: not decided) and ``message``; the rest is the kind's.

    ``is_paused`` is true while a running job is stopped because requests wait. ``waits_for`` says what a queued job
    waits for; empty in other states.
    """

    id: str
    kind: str
    origin: JobOrigin
    state: JobState
    is_paused: bool = False
    waits_for: str = ""
    revision: int | None = Field(description="the one that was checked")
    options: dict[str, Any]
    progress: JobProgress | None
    result: dict[str, Any] | None
    error: str | None
    actor: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class JobKindView(ResponseModel):
    """``unavailable`` says why jobs of the kind cannot run here; empty when they can. ``every_s`` is its schedule."""

    name: str
    unavailable: str
    every_s: float | None


class JobList(ResponseModel):
    kinds: list[JobKindView]
    jobs: list[JobView]
