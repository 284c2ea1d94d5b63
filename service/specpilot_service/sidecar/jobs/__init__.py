"""Checks that run beside the service: one at a time, at the lowest priority, and never while requests wait."""

from specpilot_service.sidecar.jobs.catalogue import JOB_KINDS
from specpilot_service.sidecar.jobs.kinds import JobKind, JobPlace, MissingKind

__all__ = ["JOB_KINDS", "JobKind", "JobPlace", "MissingKind"]
