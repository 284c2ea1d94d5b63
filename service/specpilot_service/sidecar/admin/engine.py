"""The engine: status, logs, restart, drain, resume."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Query

from specpilot_service.schemas.admin import EngineLog, EngineStatus, ReasonRequest
from specpilot_service.sidecar.admin.deps import PrincipalDep, SidecarDep
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.core import Sidecar
from specpilot_service.sidecar.engines.engine import PREVIOUS_LOG, LocalEngine
from specpilot_service.sidecar.engines.log_files import last_lines
from specpilot_service.sidecar.errors import conflict, not_found, unavailable

__all__ = ["drain", "restart", "resume", "show_log", "show_status"]


@handles("engine.status")
async def show_status(sidecar: SidecarDep) -> EngineStatus:
    return sidecar.fleet.status()


@handles("engine.logs")
async def show_log(
    sidecar: SidecarDep,
    which: Literal["current", "previous"] = "current",
    lines: Annotated[int, Query(ge=1, le=5000)] = 200,
) -> EngineLog:
    """``previous`` is the process that ended last without having been stopped."""
    if sidecar.settings.engine_url is not None:
        raise unavailable("logs: the engine is found by URL; whoever starts it has its log")
    if which == "previous":
        crash = await sidecar.store.call(sidecar.store.crashes.last)
        if crash is None:
            raise not_found("logs: no engine of this sidecar has crashed")
        path, instance_id = sidecar.settings.state / "logs" / PREVIOUS_LOG, crash.instance_id
    else:
        crash = None
        engines = [engine for engine in sidecar.fleet.engines if isinstance(engine, LocalEngine)]
        if not engines:
            raise not_found("logs: no engine runs")
        path, instance_id = engines[-1].log_path, engines[-1].id
    shown, is_cut = await asyncio.to_thread(last_lines, path, lines)
    return EngineLog(which=which, instance_id=instance_id, lines=shown, is_cut=is_cut, crash=crash)


@handles("engine.restart")
async def restart(body: ReasonRequest, sidecar: SidecarDep, principal: PrincipalDep) -> EngineStatus:
    if sidecar.settings.engine_url is not None:
        raise unavailable("restart: the engine is found by URL; whoever starts it restarts it")
    if sidecar.switching.is_running or sidecar.fleet.is_restarting:
        raise conflict("restart: a switch or a restart runs; wait for its end")
    if sidecar.fleet.stable is None:
        raise conflict("restart: no revision is applied; begin a switch")
    sidecar.fleet.is_restarting = True
    await _note(sidecar, principal.actor, "restart", body.reason)
    sidecar.spawn(sidecar.fleet.restart())
    return sidecar.fleet.status()


@handles("engine.drain")
async def drain(body: ReasonRequest, sidecar: SidecarDep, principal: PrincipalDep) -> EngineStatus:
    await _note(sidecar, principal.actor, "drain", body.reason)
    sidecar.fleet.drain()
    sidecar.fleet.reroute()
    return sidecar.fleet.status()


@handles("engine.resume")
async def resume(body: ReasonRequest, sidecar: SidecarDep, principal: PrincipalDep) -> EngineStatus:
    await _note(sidecar, principal.actor, "resume", body.reason)
    sidecar.fleet.resume()
    sidecar.fleet.reroute()
    return sidecar.fleet.status()


async def _note(sidecar: Sidecar, actor: str, action: str, reason: str) -> None:
    def store_it() -> None:
        with sidecar.store.database.transaction():
            sidecar.store.audit_log.append(actor, f"engine.{action}", "engine", reason=reason)

    await sidecar.store.call(store_it)
