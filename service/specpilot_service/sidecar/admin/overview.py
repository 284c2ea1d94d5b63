"""The state of everything, settings, and live events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header
from fastapi.responses import StreamingResponse

import specpilot
from specpilot_service.schemas.admin import GateResult, Overview, RevisionView, SettingsView
from specpilot_service.sidecar.admin.deps import SidecarDep
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.core import Sidecar
from specpilot_service.sidecar.gates import verdict_of

__all__ = ["show_events", "show_overview", "show_settings"]

_KEEP_ALIVE_S = 10.0


@handles("overview")
async def show_overview(sidecar: SidecarDep) -> Overview:
    store = sidecar.store
    current = await store.call(store.revisions.current)
    switches = await store.call(store.switches.all)
    reason = sidecar.fleet.why_not_ready()
    return Overview(
        version=specpilot.__version__,
        is_ready=not reason,
        not_ready_because=reason,
        degraded=_degraded(sidecar),
        revision=None if current is None else RevisionView.model_validate(current.model_dump()),
        switch=switches[0] if switches else None,
        engine=sidecar.fleet.status(),
        traffic=sidecar.traffic.now(),
        ceiling=await _verdict(sidecar, "ceiling", current),
        audit=await _verdict(sidecar, "audit", current),
    )


def _unavailable(why: str) -> str:
    return f"unavailable: {why}" if why else "it has not run on this revision yet"


async def _verdict(sidecar: Sidecar, name: str, revision: RevisionView | None) -> GateResult:
    """The last word of this check on the current revision: of its gate, or of a later job."""
    found = [] if revision is None else [gate for gate in revision.gates if gate.name == name]
    job = await sidecar.store.call(sidecar.store.jobs.last_result, name)
    if job is not None and revision is not None and job.revision == revision.number:
        found.append(verdict_of(job))
    if found:
        return max(found, key=lambda result: (result.checked_at is not None, result.checked_at))
    kind = sidecar.jobs.kinds.get(name)
    why = "unavailable: no such check" if kind is None else _unavailable(kind.unavailable())
    return GateResult(name=name, verdict="not_checked", message=why, checked_at=None)


def _degraded(sidecar: Sidecar) -> list[str]:
    found = []
    for engine in sidecar.fleet.engines:
        if engine.state in ("backing_off", "failed"):
            found.append(f"engine {engine.id}: {engine.detail}")
        elif engine.num_restarts:
            found.append(f"engine {engine.id}: {engine.num_restarts} restarts since it was applied")
    return found


@handles("settings")
async def show_settings(sidecar: SidecarDep) -> SettingsView:
    return SettingsView(settings=sidecar.settings.model_dump(mode="json"))


@handles("events")
async def show_events(
    sidecar: SidecarDep, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    after_id = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else None

    async def frames() -> AsyncIterator[str]:
        yield ": events follow\n\n"
        async for event in sidecar.bus.read(after_id, _KEEP_ALIVE_S):
            if event is None:
                yield ": keep-alive\n\n"
            else:
                yield f"id: {event.id}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames(), media_type="text/event-stream", headers=headers)
