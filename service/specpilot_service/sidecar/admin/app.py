"""The admin application, built from the table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

import specpilot
from specpilot.errors import ConfigError
from specpilot_service.errors import install_error_handlers
from specpilot_service.schemas import ErrorBody
from specpilot_service.schemas.admin_routes import ADMIN_PREFIX, ADMIN_ROUTES, AdminRoute
from specpilot_service.sidecar.admin import (
    audit_log,
    engine,
    health,
    jobs,
    keys,
    overview,
    profiles,
    revisions,
    switches,
    unavailable,
)
from specpilot_service.sidecar.admin.deps import PrincipalDep, SidecarDep
from specpilot_service.sidecar.admin.envelope import AdminEnvelope
from specpilot_service.sidecar.admin.registry import HANDLERS
from specpilot_service.sidecar.admin.strict import refuse_what_nobody_reads
from specpilot_service.sidecar.core import Sidecar
from specpilot_service.sidecar.errors import SidecarError

__all__ = ["create_admin_app"]

# Named so that importing them, which registers their handlers, is seen to be needed.
_NOUNS = (audit_log, engine, jobs, keys, overview, profiles, revisions, switches, unavailable)
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 401, 403, 404, 409, 413, 422, 500, 503)
}


def create_admin_app(sidecar: Sidecar) -> FastAPI:
    app = FastAPI(
        title="SpecPilot admin API",
        version=specpilot.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.sidecar = sidecar
    install_error_handlers(app)
    app.add_exception_handler(SidecarError, _tell_error)
    app.include_router(health.router)
    missing = sorted({route.name for route in ADMIN_ROUTES} - set(HANDLERS))
    if missing:
        raise ConfigError(f"admin API: no handler for {', '.join(missing)}")
    for route in ADMIN_ROUTES:
        _add(app, route)

    @app.get(
        ADMIN_PREFIX + "/openapi.json", include_in_schema=False, dependencies=[Depends(_require("viewer"))]
    )
    async def openapi() -> Response:
        return JSONResponse(_with_security(app))

    app.add_middleware(AdminEnvelope, sidecar=sidecar)
    return app


def _add(app: FastAPI, route: AdminRoute) -> None:
    responses = dict(_ERRORS)
    options: dict[str, Any] = {"response_model": route.response}
    if route.text is not None:
        options = {"response_model": None, "response_class": Response}
        responses[route.status] = {"content": {route.text: {}}}
    app.add_api_route(
        # A profile's name has a slash in it.
        ADMIN_PREFIX + route.path.replace("{profile}", "{profile:path}"),
        HANDLERS[route.name],
        methods=[route.method],
        status_code=route.status,
        summary=route.summary,
        operation_id=route.name,
        tags=[route.name.partition(".")[0]],
        dependencies=[Depends(_require(route.role)), Depends(refuse_what_nobody_reads)],
        responses=responses,
        openapi_extra={"x-specpilot-role": route.role},
        **options,
    )


def _require(role: str) -> Callable[..., Awaitable[None]]:
    async def require(principal: PrincipalDep, sidecar: SidecarDep) -> None:
        principal.require(role)  # type: ignore[arg-type]

    return require


def _with_security(app: FastAPI) -> dict[str, Any]:
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}]
    return schema


async def _tell_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SidecarError)
    return Response(error.body, error.status, error.headers, media_type="application/json")
