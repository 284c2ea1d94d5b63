"""Typed dependencies of the admin routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from specpilot_service.sidecar.access import Principal
from specpilot_service.sidecar.core import Sidecar

__all__ = ["PrincipalDep", "SidecarDep", "get_principal", "get_sidecar"]


async def get_sidecar(request: Request) -> Sidecar:
    sidecar = request.app.state.sidecar
    assert isinstance(sidecar, Sidecar)
    return sidecar


async def get_principal(request: Request) -> Principal:
    """Set by the envelope, which has authenticated it."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


SidecarDep = Annotated[Sidecar, Depends(get_sidecar)]
PrincipalDep = Annotated[Principal, Depends(get_principal)]
