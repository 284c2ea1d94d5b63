"""Typed dependencies of the routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from specpilot_service.runtime import ServiceRuntime

__all__ = ["RuntimeDep", "get_runtime"]


async def get_runtime(request: Request) -> ServiceRuntime:
    runtime = request.app.state.runtime
    assert isinstance(runtime, ServiceRuntime)
    return runtime


RuntimeDep = Annotated[ServiceRuntime, Depends(get_runtime)]
