"""Liveness (the process answers) and readiness (it can take work now)."""

from __future__ import annotations

from fastapi import APIRouter, Response

from specpilot_service.deps import RuntimeDep
from specpilot_service.schemas import Health

__all__ = ["livez", "readyz", "router"]

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> Health:
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
def readyz(runtime: RuntimeDep, response: Response) -> Health:
    reason = runtime.why_not_ready()
    health = runtime.engine.health()
    response.status_code = 503 if reason else 200
    return Health(
        status="not ready" if reason else "ok",
        detail=reason,
        num_running=health.num_running,
        num_waiting=health.num_waiting,
    )
