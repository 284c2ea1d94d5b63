"""The console on a free loopback port, in a thread of the test process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.service.live_server import PATIENCE_S, wait_until

__all__ = ["Turns", "run_console"]


class Turns:
    """Replicas behind a balancer that knows no sessions: request after request goes to the next one."""

    def __init__(self, *replicas: ASGIApp) -> None:
        self._replicas = replicas
        self.num_requests = [0] * len(replicas)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        index = sum(self.num_requests) % len(self._replicas)
        self.num_requests[index] += 1
        await self._replicas[index](scope, receive, send)


@contextlib.contextmanager
def run_console(app: ASGIApp) -> Iterator[str]:
    """Serve until the block ends; yields its URL without a slash at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started, "the console is started")
        try:
            host, port = listener.getsockname()
            yield f"http://{host}:{port}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
