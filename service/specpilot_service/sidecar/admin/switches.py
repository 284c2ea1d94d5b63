"""Switches: begin, watch, change the share, promote, cancel."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Depends

from specpilot_service.schemas.admin import (
    CanaryRequest,
    PromoteRequest,
    ReasonRequest,
    SwitchList,
    SwitchRequest,
    SwitchView,
)
from specpilot_service.sidecar.admin.deps import PrincipalDep, SidecarDep
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.errors import conflict, not_found

__all__ = ["cancel", "get_known_id", "list_switches", "promote", "set_share", "show_switch", "start"]


async def get_known_id(switch_id: str, sidecar: SidecarDep) -> str:
    """404 for an unknown switch, before anything is said about its state."""
    return (await sidecar.switching.get(switch_id)).id


_KnownId = Annotated[str, Depends(get_known_id)]


@handles("switches.list")
async def list_switches(sidecar: SidecarDep) -> SwitchList:
    return SwitchList(switches=await sidecar.store.call(sidecar.store.switches.all))


@handles("switches.show")
async def show_switch(switch_id: str, sidecar: SidecarDep) -> SwitchView:
    return await sidecar.switching.get(switch_id)


@handles("switches.start")
async def start(body: SwitchRequest, sidecar: SidecarDep, principal: PrincipalDep) -> SwitchView:
    if body.profile is not None:
        resolved = await asyncio.to_thread(sidecar.catalogue.admit, body.profile)
    else:
        assert body.revision is not None
        revision = await sidecar.store.call(sidecar.store.revisions.get, body.revision)
        if revision is None:
            raise not_found(f"revision: got {body.revision}, expected a known number", param="revision")
        if revision.state != "imported":
            raise conflict(
                f"revision {body.revision}: it is {revision.state}, expected an imported one; use its rollback"
            )
        resolved = revision.resolved
    return await sidecar.switching.begin(
        resolved,
        mode=body.mode,
        revision=body.revision,
        canary_share=body.canary_share,
        is_promoted_at_once=body.is_promoted_at_once,
        actor=principal.actor,
        reason=body.reason,
    )


@handles("switches.canary")
async def set_share(
    switch_id: _KnownId, body: CanaryRequest, sidecar: SidecarDep, principal: PrincipalDep
) -> SwitchView:
    return await sidecar.switching.set_share(switch_id, body.share, principal.actor, body.reason)


@handles("switches.promote")
async def promote(
    switch_id: _KnownId, body: PromoteRequest, sidecar: SidecarDep, principal: PrincipalDep
) -> SwitchView:
    if body.is_forced:
        principal.require("admin")
    return await sidecar.switching.promote(switch_id, principal.actor, body.reason, is_forced=body.is_forced)


@handles("switches.cancel")
async def cancel(
    switch_id: _KnownId, body: ReasonRequest, sidecar: SidecarDep, principal: PrincipalDep
) -> SwitchView:
    return await sidecar.switching.cancel(switch_id, principal.actor, body.reason)
