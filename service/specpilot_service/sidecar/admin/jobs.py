"""Jobs, and the two kinds of checks that have routes of their own: audits and ceilings."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from specpilot_service.schemas.admin import ReasonRequest
from specpilot_service.schemas.admin_jobs import CheckRequest, JobList, JobRequest, JobView
from specpilot_service.sidecar.admin.deps import PrincipalDep, SidecarDep
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.core import Sidecar
from specpilot_service.sidecar.errors import not_found

__all__ = [
    "cancel",
    "cancel_audit",
    "check_ceiling",
    "list_audits",
    "list_jobs",
    "show_audit",
    "show_ceiling",
    "show_job",
    "start",
    "start_audit",
]

_Limit = Annotated[int, Query(ge=1, le=1000)]
_Kind = Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


@handles("jobs.list")
async def list_jobs(sidecar: SidecarDep, kind: _Kind = None, limit: _Limit = 50) -> JobList:
    kinds = [view for view in sidecar.jobs.kind_views() if kind in (None, view.name)]
    return JobList(kinds=kinds, jobs=await sidecar.jobs.list(kind, limit))


@handles("jobs.start")
async def start(body: JobRequest, sidecar: SidecarDep, principal: PrincipalDep) -> JobView:
    return await sidecar.jobs.start(body.kind, body.options, actor=principal.actor, reason=body.reason)


@handles("jobs.show")
async def show_job(job_id: str, sidecar: SidecarDep) -> JobView:
    return await sidecar.jobs.get(job_id)


@handles("jobs.cancel")
async def cancel(job_id: str, body: ReasonRequest, sidecar: SidecarDep, principal: PrincipalDep) -> JobView:
    return await sidecar.jobs.cancel(job_id, principal.actor, body.reason)


@handles("ceilings.show")
async def show_ceiling(sidecar: SidecarDep) -> JobView:
    sidecar.jobs.require("ceiling")
    found = await sidecar.store.call(sidecar.store.jobs.last_result, "ceiling")
    if found is None:
        raise not_found("ceilings: no check has ended with a result yet; begin one")
    return found


@handles("ceilings.check")
async def check_ceiling(body: CheckRequest, sidecar: SidecarDep, principal: PrincipalDep) -> JobView:
    return await sidecar.jobs.start("ceiling", body.options, actor=principal.actor, reason=body.reason)


@handles("audits.list")
async def list_audits(sidecar: SidecarDep, limit: _Limit = 50) -> JobList:
    return await list_jobs(sidecar, "audit", limit)


@handles("audits.start")
async def start_audit(body: CheckRequest, sidecar: SidecarDep, principal: PrincipalDep) -> JobView:
    return await sidecar.jobs.start("audit", body.options, actor=principal.actor, reason=body.reason)


@handles("audits.show")
async def show_audit(audit_id: str, sidecar: SidecarDep) -> JobView:
    return await _audit(sidecar, audit_id)


@handles("audits.cancel")
async def cancel_audit(
    audit_id: str, body: ReasonRequest, sidecar: SidecarDep, principal: PrincipalDep
) -> JobView:
    await _audit(sidecar, audit_id)
    return await sidecar.jobs.cancel(audit_id, principal.actor, body.reason)


async def _audit(sidecar: Sidecar, audit_id: str) -> JobView:
    job = await sidecar.jobs.get(audit_id)
    if job.kind != "audit":
        raise not_found(f"audit: got {audit_id!r}, which is a job of the kind {job.kind}")
    return job
