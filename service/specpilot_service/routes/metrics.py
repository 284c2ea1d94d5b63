"""Metrics in Prometheus text format."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from specpilot_service.deps import RuntimeDep

__all__ = ["metrics", "router"]

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=Response)
def metrics(runtime: RuntimeDep) -> Response:
    return Response(generate_latest(runtime.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
