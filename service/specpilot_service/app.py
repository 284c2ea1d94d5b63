"""The application factory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import specpilot
from specpilot.engines.base import Engine
from specpilot_service.errors import install_error_handlers
from specpilot_service.middleware import RequestEnvelope
from specpilot_service.routes import control, health, metrics, openai
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.settings import Settings

__all__ = ["create_app"]


def create_app(settings: Settings, engine: Engine) -> FastAPI:
    """The OpenAI endpoint, health and metrics over ``engine``, which the caller has built and closes."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming_up = asyncio.create_task(app.state.runtime.warm_up())
        yield
        await warming_up
        app.state.runtime.workers.shutdown()

    # The documentation pages of the framework load scripts from the network; the schema itself is served.
    app = FastAPI(
        title="SpecPilot",
        version=specpilot.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    runtime = ServiceRuntime(settings, engine)
    app.state.runtime = runtime
    app.add_middleware(RequestEnvelope, metrics=runtime.metrics, max_body_bytes=settings.max_body_bytes)
    install_error_handlers(app)
    for routes in (health, metrics, openai):
        app.include_router(routes.router)
    if settings.control_key is not None:
        app.include_router(control.router)
    return app
