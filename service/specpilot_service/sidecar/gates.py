"""Checks between 'the new engine serves' and 'it is promoted'."""

from __future__ import annotations

import logging
from typing import Protocol

from specpilot.errors import SpecPilotError
from specpilot_service.schemas.admin import GateResult, Verdict
from specpilot_service.schemas.admin_jobs import JobView
from specpilot_service.sidecar.engines.engine import LocalEngine, ManagedEngine
from specpilot_service.sidecar.jobs.runner import JobRunner
from specpilot_service.sidecar.store.database import utc_now

__all__ = ["Gate", "JobGate", "verdict_of"]

log = logging.getLogger(__name__)


class Gate(Protocol):
    """A check of a running engine. It raises nothing: what goes wrong is a failed verdict with its message."""

    name: str

    async def check(self, candidate: ManagedEngine, stable: ManagedEngine | None) -> GateResult: ...


class JobGate:
    """Runs a job of the kind ``name`` on the candidate and takes its verdict.

    A kind that is not available here is recorded as not checked, which never counts as passed. A kind that is
    available and comes to no verdict, for whatever reason, fails the gate: an engine could bring that about.
    """

    def __init__(self, jobs: JobRunner, name: str) -> None:
        self._jobs, self.name = jobs, name

    async def check(self, candidate: ManagedEngine, stable: ManagedEngine | None) -> GateResult:
        kind = self._jobs.kinds[self.name]
        resolved = candidate.resolved if isinstance(candidate, LocalEngine) else None
        if why := kind.unavailable() or kind.unavailable_for(resolved):
            return GateResult(
                name=self.name, verdict="not_checked", message=f"unavailable: {why}", checked_at=None
            )
        try:
            job = await self._jobs.gate(self.name, candidate)
        except SpecPilotError as error:
            return self._failed(f"the check could not run: {error}")
        except Exception as error:
            log.error("gate %s: a defect of the sidecar", self.name, exc_info=error)
            return self._failed("the check could not run; the log has the cause")
        found = verdict_of(job)
        if found.verdict == "not_checked":
            return found.model_copy(update={"verdict": "failed"})
        return found

    def _failed(self, message: str) -> GateResult:
        return GateResult(name=self.name, verdict="failed", message=message, checked_at=utc_now())


def verdict_of(job: JobView) -> GateResult:
    """What an ended job says: ``not_checked`` unless it has decided."""
    at = job.ended_at
    if job.result is None:
        message = f"{job.id} {job.state}: {job.error or 'no result'}"
        return GateResult(name=job.kind, verdict="not_checked", message=message, checked_at=at)
    passed, message = job.result["passed"], job.result["message"]
    if passed is None:
        message = f"not decided: {message}"
    verdict: Verdict = "not_checked" if passed is None else "passed" if passed else "failed"
    return GateResult(name=job.kind, verdict=verdict, message=f"{message} ({job.id})", checked_at=at)
