"""Liveness (the process answers), start-up (the first engine is up or known to be down), readiness, and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from specpilot_service.schemas import Health
from specpilot_service.sidecar.admin.deps import SidecarDep

__all__ = ["livez", "metrics", "readyz", "router", "startupz"]

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> Health:
    return Health(status="ok")


@router.get("/startupz", responses={503: {"model": Health}})
async def startupz(sidecar: SidecarDep, response: Response) -> Health:
    """503 while the first start goes on; a queue that is full or a switch never bring it back."""
    response.status_code = 200 if sidecar.has_booted else 503
    return Health(status="ok" if sidecar.has_booted else "not ready")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(sidecar: SidecarDep, response: Response) -> Health:
    reason = sidecar.fleet.why_not_ready()
    response.status_code = 503 if reason else 200
    return Health(status="not ready" if reason else "ok", detail=reason)


@router.get("/metrics", response_class=Response)
async def metrics(sidecar: SidecarDep, request: Request) -> Response:
    """The sidecar's own, then the stable engine's as it last gave them."""
    if not sidecar.settings.open_metrics:
        request.state.principal.require("viewer")
    body = generate_latest(sidecar.metrics.registry) + sidecar.traffic.engine_text
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})
