"""The process: two listeners on one loop, and the order in which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from specpilot.errors import ConfigError
from specpilot_service.sidecar.admin.app import create_admin_app
from specpilot_service.sidecar.catalogue import Catalogue
from specpilot_service.sidecar.core import ADMIN_KEY_FILE, Sidecar
from specpilot_service.sidecar.fleet import shutting_down
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.store import StateStore

__all__ = ["serve"]

log = logging.getLogger(__name__)


class _Listener(uvicorn.Server):
    """Signals belong to the process, not to one of its listeners."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listener(app: Any, settings: SidecarSettings) -> _Listener:
    return _Listener(
        uvicorn.Config(
            app,
            log_config=None,
            log_level=settings.log_level,
            access_log=settings.log_level == "debug",
            server_header=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"{host}:{port}: cannot listen there: {error.strerror}; choose another port or stop what has it"
        ) from None


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    settings: SidecarSettings,
    store: StateStore,
    catalogue: Catalogue,
    *,
    on_start: Callable[[Sidecar, str, str], None] = lambda sidecar, gateway_url, admin_url: None,
    ending: asyncio.Event | None = None,
    **parts: Any,
) -> bool:
    """Serve until SIGTERM or SIGINT, or until ``ending`` is set; True if every open request could finish.

    Signals are left alone when ``ending`` is given. ``on_start`` gets the sidecar and the addresses of both listeners;
    ``parts`` go to ``Sidecar``.

    Raises
    ------
    ConfigError
        An address cannot be listened on.
    """
    with contextlib.ExitStack() as stack:
        gateway_socket = stack.enter_context(_bind(settings.host, settings.port))
        admin_socket = stack.enter_context(_bind(settings.admin_host, settings.admin_port))
        sidecar = Sidecar(settings, store, catalogue, **parts)
        gateway, admin = _listener(sidecar.gateway, settings), _listener(create_admin_app(sidecar), settings)
        has_signals, ending = ending is None, ending or asyncio.Event()

        def end(name: str) -> None:
            if ending.is_set():
                log.warning("%s again: closing without waiting", name)
                for flight in list(sidecar.gateway.flights):
                    flight.cut(shutting_down())
            else:
                log.info("%s: draining, %d requests are open", name, len(sidecar.gateway.flights))
            ending.set()

        for sig in (signal.SIGTERM, signal.SIGINT) if has_signals else ():
            asyncio.get_running_loop().add_signal_handler(sig, end, sig.name)
        serving = [
            asyncio.create_task(gateway.serve([gateway_socket])),
            asyncio.create_task(admin.serve([admin_socket])),
        ]
        await sidecar.start()
        gateway_url, admin_url = _url(gateway_socket), _url(admin_socket)
        log.info("gateway %s/v1, admin API %s/admin/v1", gateway_url, admin_url)
        log.info("first admin key: %s", settings.state / ADMIN_KEY_FILE)
        on_start(sidecar, gateway_url, admin_url)
        await ending.wait()
        has_finished = await sidecar.drain()
        gateway.should_exit = True
        await serving[0]
        await sidecar.stop()
        admin.should_exit = True
        await serving[1]
        return has_finished
