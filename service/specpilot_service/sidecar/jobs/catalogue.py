"""What kinds of jobs this build has."""

from __future__ import annotations

from specpilot_service.sidecar.jobs.audit import AuditKind
from specpilot_service.sidecar.jobs.kinds import JobKind, MissingKind

__all__ = ["JOB_KINDS"]

JOB_KINDS: dict[str, JobKind] = {
    kind.name: kind for kind in (AuditKind(), MissingKind("ceiling", "this build has no ceiling check yet"))
}
"""By name. The order is that of the gates of a switch."""
