"""Asks a controller; what agents and the command line use."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from specpilot.controller.protocol import decode, encode
from specpilot.errors import EngineError, RequestError

__all__ = ["call"]


def call(path: Path, command: str, timeout_s: float | None = None, **arguments: Any) -> dict[str, Any]:
    """One command.

    Raises
    ------
    EngineError
        Nobody answers there.
    RequestError
        The controller refuses; the message is its own.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            connection.sendall(encode({"command": command} | arguments))
            with connection.makefile("rb") as lines:
                line = lines.readline()
        except OSError as error:
            raise EngineError(f"controller: no answer at {path}: {error}; is it running?") from None
    if not line:
        raise EngineError("controller: it closed the connection without an answer")
    answer = decode(line)
    if not answer.pop("ok", False):
        raise RequestError(f"{answer.get('error', 'refused')}")
    return answer
