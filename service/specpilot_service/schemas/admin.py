"""The admin API of the sidecar: what operators send and get (``/admin/v1``). Routes: ``admin_routes.py``;
keys and the audit log: ``admin_access.py``.

Times are UTC, ISO 8601. Identifiers of keys, switches and engine instances are opaque words; revisions are numbered
from 1 in the order in which they were made.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from specpilot_service.schemas.base import MAX_INTEGER, PlainText, RequestModel, ResponseModel

__all__ = [
    "BreakerState",
    "CanaryRequest",
    "CrashRecord",
    "DiffLine",
    "EngineInstance",
    "EngineLog",
    "EngineState",
    "EngineStatus",
    "GateResult",
    "Overview",
    "ProfileDetail",
    "ProfileList",
    "ProfileSummary",
    "PromoteRequest",
    "ReasonRequest",
    "ResolvedView",
    "RevisionDetail",
    "RevisionDiff",
    "RevisionImport",
    "RevisionList",
    "RevisionState",
    "RevisionView",
    "RollbackRequest",
    "SettingsView",
    "SidecarEvent",
    "SwitchList",
    "SwitchMode",
    "SwitchRequest",
    "SwitchState",
    "SwitchStep",
    "SwitchView",
    "Traffic",
    "Verdict",
]

SwitchMode = Literal["surge", "recreate", "in-engine"]
SwitchState = Literal[
    "pending",
    "draining",
    "starting",
    "canary",
    "gating",
    "promoting",
    "applied",
    "rolling_back",
    "rolled_back",
    "cancelled",
    "failed",
]
RevisionState = Literal["pending", "current", "superseded", "rejected", "imported"]
EngineState = Literal["starting", "ready", "backing_off", "stopping", "stopped", "failed"]
BreakerState = Literal["closed", "open", "half_open"]
Verdict = Literal["passed", "failed", "not_checked"]

_Reason = Annotated[PlainText, Field(description="why; kept in the audit log")]


# Profiles


class ProfileSummary(ResponseModel):
    """``status`` is the resolver's word for this machine (``runnable``, ...); ``reasons`` say why it is another."""

    profile_id: str
    name: str
    title: str = ""
    gpu: str
    target: str
    drafter: str
    regime: str
    engine: str
    switch: SwitchMode
    status: str
    reasons: list[str]
    is_current: bool = False


class ProfileList(ResponseModel):
    gpu: str = Field(description="what this machine was recognised as")
    profiles: list[ProfileSummary]


class ProfileDetail(ProfileSummary):
    document: dict[str, Any] = Field(description="the profile's whole file")


class ResolvedView(ResponseModel):
    """The exact command and environment, and where each value comes from (``origins``: option -> source)."""

    profile_id: str
    name: str
    command: list[str]
    environment: dict[str, str]
    origins: dict[str, str]
    startup_budget_s: float
    switch: SwitchMode


# Switches


class SwitchRequest(RequestModel):
    """Exactly one of ``profile`` (id or name) and ``revision`` (a number, for instance an imported one)."""

    profile: PlainText | None = None
    revision: int | None = Field(default=None, ge=1, le=MAX_INTEGER)
    mode: Literal["auto", "surge", "recreate", "in-engine"] = Field(
        default="auto", description="auto: what the profile says; a mode that cannot work here is refused"
    )
    canary_share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="share of new requests that the new engine gets first (surge only)",
    )
    is_promoted_at_once: bool = Field(
        default=True, description="false: stay in the state canary until promote or rollback is called"
    )
    reason: _Reason

    @model_validator(mode="after")
    def _names_one_thing(self) -> SwitchRequest:
        if (self.profile is None) == (self.revision is None):
            raise ValueError("expected exactly one of profile and revision")
        if not self.is_promoted_at_once and self.canary_share is None:
            raise ValueError("is_promoted_at_once is false, but there is no canary_share to wait at")
        return self


class GateResult(ResponseModel):
    """One check between 'it serves' and 'it is promoted'. ``not_checked``: the check does not exist on this box.

    ``checked_at`` is null where nothing looked at anything.
    """

    name: str
    verdict: Verdict
    message: str
    checked_at: datetime | None


class SwitchStep(ResponseModel):
    state: SwitchState
    at: datetime
    message: str = ""


class SwitchView(ResponseModel):
    """``num_tries`` is more than 1 for a first start that was tried again: then ``steps`` are those of the last try and
    ``error`` is the last error, also after a try that succeeded.
    """

    id: str
    state: SwitchState
    mode: SwitchMode
    profile_id: str
    profile_name: str
    from_revision: int | None
    to_revision: int
    canary_share: float | None
    is_promoted_at_once: bool
    gates: list[GateResult]
    actor: str
    reason: str
    num_tries: int = 1
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    steps: list[SwitchStep]


class SwitchList(ResponseModel):
    switches: list[SwitchView]


class CanaryRequest(RequestModel):
    share: float = Field(gt=0, lt=1)
    reason: _Reason


class PromoteRequest(RequestModel):
    is_forced: bool = Field(default=False, description="also with a failed gate; needs the scope admin")
    reason: _Reason


class ReasonRequest(RequestModel):
    reason: _Reason


class RollbackRequest(RequestModel):
    mode: Literal["auto", "surge", "recreate", "in-engine"] = "auto"
    reason: _Reason


# Revisions


class RevisionView(ResponseModel):
    number: int
    state: RevisionState
    profile_id: str
    profile_name: str
    actor: str
    reason: str
    created_at: datetime
    applied_at: datetime | None
    switch_id: str | None
    gates: list[GateResult]


class RevisionList(ResponseModel):
    current: int | None
    revisions: list[RevisionView]


class RevisionDetail(RevisionView):
    resolved: ResolvedView


class DiffLine(ResponseModel):
    """``path`` is dotted (``environment.OMP_NUM_THREADS``); None means absent on that side."""

    path: str
    before: str | None
    after: str | None


class RevisionDiff(ResponseModel):
    before: int
    after: int
    lines: list[DiffLine]


class RevisionImport(RequestModel):
    document: str = Field(min_length=1, max_length=1_000_000, description="what export gave, as text")
    reason: _Reason


# Engine


class CrashRecord(ResponseModel):
    instance_id: str
    revision: int | None
    exit_code: int | None
    signal: str | None
    at: datetime
    message: str


class EngineInstance(ResponseModel):
    id: str
    revision: int | None
    role: Literal["stable", "candidate", "retiring"]
    state: EngineState
    detail: str
    pid: int | None
    started_at: datetime | None
    ready_at: datetime | None
    num_restarts: int
    models: list[str]
    share: float = Field(description="share of new requests it gets")
    num_in_flight: int
    breaker: BreakerState
    last_crash: CrashRecord | None


class EngineStatus(ResponseModel):
    """``local``: processes of the sidecar. ``url``: an engine that somebody else starts and stops."""

    kind: Literal["local", "url"]
    is_draining: bool
    instances: list[EngineInstance]


class EngineLog(ResponseModel):
    which: Literal["current", "previous"]
    instance_id: str
    lines: list[str]
    is_cut: bool = Field(description="older lines were left out")
    crash: CrashRecord | None = Field(description="for previous: how that process ended")


# Overview


class Traffic(ResponseModel):
    """Over the last minute, from the gateway and the engine's own counters; None where nothing was counted.

    ``num_held`` are requests that wait because no engine takes work at the moment, ``num_queued`` because all places
    are taken.
    """

    num_in_flight: int
    num_queued: int
    num_held: int
    requests_per_s: float
    refused_per_s: float
    tokens_per_s: float | None
    tau: float | None
    step_ms: float | None
    first_event_ms_p50: float | None
    first_event_ms_p99: float | None


class Overview(ResponseModel):
    """``is_ready`` is what ``/readyz`` answers; ``degraded`` names whatever does not run as the profile says."""

    version: str
    is_ready: bool
    not_ready_because: str
    degraded: list[str]
    revision: RevisionView | None
    switch: SwitchView | None
    engine: EngineStatus
    traffic: Traffic
    ceiling: GateResult
    audit: GateResult


class SettingsView(ResponseModel):
    """The sidecar's settings as they are in force; secrets are not among them."""

    settings: dict[str, Any]


class SidecarEvent(ResponseModel):
    """The ``data:`` of one server-sent event; its ``id:`` is ``id``, its ``event:`` is ``kind``.

    ``data`` is a SwitchView for ``switch``, an EngineStatus for ``engine``, an AuditEntry for ``audit``, a Traffic for
    ``traffic`` (every two seconds while somebody listens), a JobView for ``job``.
    """

    id: int
    at: datetime
    kind: Literal["switch", "engine", "audit", "traffic", "job"]
    data: dict[str, Any]
