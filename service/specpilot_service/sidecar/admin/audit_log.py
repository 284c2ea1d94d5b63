"""The audit log: list, export, verify."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query
from fastapi.responses import StreamingResponse

from specpilot_service.schemas.admin_access import AuditPage, ChainReport
from specpilot_service.sidecar.admin.deps import SidecarDep
from specpilot_service.sidecar.admin.registry import handles

__all__ = ["export", "list_entries", "verify"]


@handles("audit_log.list")
async def list_entries(
    sidecar: SidecarDep,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    action: Annotated[str | None, Query(pattern=r"^[a-z_]+\.?([a-z_]+)?$")] = None,
) -> AuditPage:
    """``action`` is one action (``key.create``) or, with a dot at its end, all of a noun (``key.``)."""
    entries = await sidecar.store.call(sidecar.store.audit_log.page, before, limit, action)
    is_more = len(entries) == limit and entries[-1].seq > 1
    return AuditPage(entries=entries, next_before=entries[-1].seq if is_more else None)


@handles("audit_log.export")
async def export(sidecar: SidecarDep) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        last = 0
        while entries := await sidecar.store.call(sidecar.store.audit_log.after, last):
            for entry in entries:
                yield entry.model_dump_json() + "\n"
            last = entries[-1].seq

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@handles("audit_log.verify")
async def verify(sidecar: SidecarDep) -> ChainReport:
    return await sidecar.store.call(sidecar.store.audit_log.verify)
