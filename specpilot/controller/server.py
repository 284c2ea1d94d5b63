"""Answers commands on a Unix socket, one at a time; who may ask what is decided by the peer's user."""

from __future__ import annotations

import inspect
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from specpilot.controller.controller import Controller
from specpilot.controller.protocol import MAX_LINE_BYTES, decode, encode, peer_user
from specpilot.controller.slots.base import System
from specpilot.controller.spending import AlphaPlan
from specpilot.errors import ConfigError, RequestError, SpecPilotError

__all__ = ["AGENT_COMMANDS", "OPERATOR_COMMANDS", "Server", "operators_of"]

log = logging.getLogger(__name__)

AGENT_COMMANDS: Final = ("time", "pair", "check", "promote", "close", "status")
OPERATOR_COMMANDS: Final = (*AGENT_COMMANDS, "open", "seal")
_IDLE_LIMIT_S = 30.0


class Server:
    """Serves until ``stop``.

    Parameters
    ----------
    agents, operators
        Users; all others are refused before they are listened to.
    take_system
        Makes a system of what a caller names, with a snapshot of its code.
    """

    def __init__(
        self,
        path: Path,
        controller: Controller,
        *,
        agents: tuple[int, ...],
        operators: tuple[int, ...],
        take_system: Callable[[Mapping[str, Any]], System],
    ) -> None:
        self._controller, self._agents, self._operators = controller, agents, operators
        self._take_system, self._lock = take_system, threading.Lock()
        if path.is_socket():
            path.unlink()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        # Anybody may knock: the peer's user decides, and that cannot be forged.
        path.chmod(0o666)
        self._listener.listen()
        self._is_stopped = False

    def serve(self) -> None:
        while not self._is_stopped:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        self._is_stopped = True
        self._listener.close()

    def _handle(self, connection: socket.socket) -> None:
        with connection:
            user = peer_user(connection)
            connection.settimeout(_IDLE_LIMIT_S)
            try:
                with connection.makefile("rb") as lines:
                    line = lines.readline(MAX_LINE_BYTES)
                answer = {"ok": True} | self._answer(user, line)
            except SpecPilotError as error:
                answer = {"ok": False, "error": str(error), "type": type(error).__name__}
            except OSError:  # the caller went away
                return
            except Exception as error:
                log.exception("this is a defect of the controller")
                answer = {
                    "ok": False,
                    "error": f"internal error: {type(error).__name__}",
                    "type": "InternalError",
                }
            try:
                connection.sendall(encode(answer))
            except OSError:
                return

    def _answer(self, user: int, line: bytes) -> dict[str, Any]:
        allowed = (
            OPERATOR_COMMANDS if user in self._operators else AGENT_COMMANDS if user in self._agents else ()
        )
        if not allowed:
            raise RequestError(f"user {user} may not use the controller")
        message = decode(line)
        command = message.pop("command", None)
        if command not in allowed:
            raise RequestError(f"command: got {command!r}, expected one of: {', '.join(allowed)}")
        if command == "close" and "direction" not in message and user not in self._operators:
            raise RequestError("close: an agent closes directions, the operator the round; name a direction")
        for name in ("system", "candidate", "stock"):
            if name in message:
                message[name] = self._take_system(message[name])
        if "plan" in message:
            try:
                message["plan"] = AlphaPlan(**message["plan"])
            except TypeError as error:
                raise ConfigError(f"plan: {error}") from None
        method: Callable[..., dict[str, Any]] = getattr(self._controller, command)
        try:
            inspect.signature(method).bind(f"user {user}", **message)
        except TypeError as error:
            raise RequestError(f"{command}: {error}") from None
        if command == "status":
            return method(f"user {user}")
        if not self._lock.acquire(blocking=False):
            raise RequestError("busy: the controller measures for somebody else; ask again later")
        try:
            return method(f"user {user}", **message)
        finally:
            self._lock.release()


def operators_of(agents: tuple[int, ...]) -> tuple[int, ...]:
    """Root, and without root the user that started the controller, unless it is an agent."""
    return tuple(user for user in {0, os.getuid()} if user not in agents)
