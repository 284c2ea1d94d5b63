"""A real server on a free loopback port, in a thread of the test process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from specpilot.engines.base import Engine
from specpilot_service.app import create_app
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.server import DrainingServer, make_server
from specpilot_service.settings import Settings

__all__ = ["LiveServer", "run_server", "wait_until"]

PATIENCE_S = 60.0


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for something that another thread brings about; fails only when it does not come at all."""
    pause = threading.Event()
    for _ in range(int(patience_s / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(f"did not happen: {what}")


@dataclass
class LiveServer:
    host: str
    port: int
    server: DrainingServer
    runtime: ServiceRuntime
    client: httpx.Client

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)

    def is_idle(self) -> bool:
        health = self.runtime.engine.health()
        return health.num_running == 0 and health.num_waiting == 0 and self.runtime.workers.num_open == 0


@contextmanager
def run_server(engine: Engine, **settings: Any) -> Iterator[LiveServer]:
    """Serve ``engine`` until the block ends; yields when ``/readyz`` has said 200."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    app = create_app(Settings(host=host, port=port, **settings), engine)
    server = make_server(app, app.state.runtime.settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=PATIENCE_S) as client:
        try:
            wait_until(lambda: server.started, "the server starts")
            wait_until(lambda: client.get("/readyz").status_code == 200, "the server is ready")
            yield LiveServer(host, port, server, app.state.runtime, client)
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            listener.close()
