"""The process around the app: listen, and on SIGTERM drain before closing."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from specpilot_service.runtime import ServiceRuntime
from specpilot_service.settings import Settings

__all__ = ["DrainingServer", "make_server"]

log = logging.getLogger(__name__)


class DrainingServer(uvicorn.Server):
    """Drains on the first SIGTERM or SIGINT, with the port still open so that ``/readyz`` says 503.

    The second signal ends at once.
    """

    def __init__(self, config: uvicorn.Config, runtime: ServiceRuntime) -> None:
        super().__init__(config)
        self._runtime = runtime
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self.has_drained = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not handed on to the base class: it would raise the signal again at the end, and the exit code with
        # it.
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.begin_drain, signal.Signals(sig).name)

    def begin_drain(self, reason: str) -> None:
        if self._draining is not None:
            log.warning("%s again: closing without waiting", reason)
            self.has_drained, self.should_exit, self.force_exit = False, True, True
            return
        log.info("%s: draining, %d requests are open", reason, self._runtime.workers.num_open)
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        try:
            self.has_drained = await self._runtime.drain()
        finally:
            self.should_exit = True


def make_server(app: FastAPI, settings: Settings) -> DrainingServer:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.log_level == "debug",
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=5,
    )
    return DrainingServer(config, app.state.runtime)
