"""The controller's socket: one JSON object a line each way, version 1.

Request: ``{"version": 1, "command": NAME, ...arguments}``. Answer: ``{"version": 1, "ok": true, ...}`` or ``{"version":
1, "ok": false, "error": MESSAGE}``. Who asks is what the kernel says of the peer, never what the request says.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Final

from specpilot.errors import RequestError

__all__ = ["MAX_LINE_BYTES", "VERSION", "decode", "encode", "peer_user"]

VERSION: Final = 1
MAX_LINE_BYTES: Final = 1 << 20
_UCRED = struct.Struct("3i")


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION} | message, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """RequestError for anything that is no message of this version."""
    try:
        message = json.loads(line)
    except ValueError as error:
        raise RequestError(f"message: not JSON: {error}") from None
    if not isinstance(message, dict) or message.pop("version", None) != VERSION:
        raise RequestError(f"message: got {line[:80]!r}, expected a JSON object of version {VERSION}")
    return message


def peer_user(connection: socket.socket) -> int:
    """User of the process at the other end (SO_PEERCRED)."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(data)[1])
