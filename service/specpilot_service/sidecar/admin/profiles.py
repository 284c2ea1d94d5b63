"""Profiles: list, show, resolved."""

from __future__ import annotations

import asyncio

from specpilot_service.schemas.admin import ProfileDetail, ProfileList, ResolvedView
from specpilot_service.sidecar.admin.deps import SidecarDep
from specpilot_service.sidecar.admin.registry import handles

__all__ = ["list_profiles", "resolve_profile", "show_profile"]


@handles("profiles.list")
async def list_profiles(sidecar: SidecarDep) -> ProfileList:
    found = await asyncio.to_thread(sidecar.catalogue.list)
    current = await sidecar.store.call(sidecar.store.revisions.current)
    for profile in found.profiles:
        profile.is_current = current is not None and profile.profile_id == current.profile_id
    return found


@handles("profiles.show")
async def show_profile(profile: str, sidecar: SidecarDep) -> ProfileDetail:
    found = await asyncio.to_thread(sidecar.catalogue.show, profile)
    current = await sidecar.store.call(sidecar.store.revisions.current)
    found.is_current = current is not None and found.profile_id == current.profile_id
    return found


@handles("profiles.resolved")
async def resolve_profile(profile: str, sidecar: SidecarDep) -> ResolvedView:
    return await asyncio.to_thread(sidecar.catalogue.resolve, profile)
