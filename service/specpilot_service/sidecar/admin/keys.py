"""Keys: create, list, revoke, usage."""

from __future__ import annotations

from specpilot_service.schemas.admin_access import KeyCreate, KeyCreated, KeyList, KeyUsage, KeyView, WhoAmI
from specpilot_service.sidecar.admin.deps import PrincipalDep, SidecarDep
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.errors import not_found

__all__ = ["create_key", "list_keys", "revoke_key", "show_usage", "whoami"]


@handles("whoami")
async def whoami(principal: PrincipalDep) -> WhoAmI:
    return WhoAmI(key_id=principal.key_id, name=principal.name, scopes=list(principal.scopes))


@handles("keys.list")
async def list_keys(sidecar: SidecarDep) -> KeyList:
    return KeyList(keys=[view for view, _ in await sidecar.store.call(sidecar.store.keys.all)])


@handles("keys.create")
async def create_key(body: KeyCreate, sidecar: SidecarDep, principal: PrincipalDep) -> KeyCreated:
    return await sidecar.create_key(body, principal.actor)


@handles("keys.revoke")
async def revoke_key(key_id: str, sidecar: SidecarDep, principal: PrincipalDep) -> KeyView:
    return await sidecar.revoke_key(key_id, principal.actor)


@handles("keys.usage")
async def show_usage(key_id: str, sidecar: SidecarDep) -> KeyUsage:
    view = await sidecar.store.call(sidecar.store.keys.get, key_id)
    if view is None:
        raise not_found(f"key: got {key_id!r}, expected a known id")
    rows = await sidecar.store.call(sidecar.store.usage.of, key_id)
    return KeyUsage(key_id=key_id, name=view.name, rows=rows)
