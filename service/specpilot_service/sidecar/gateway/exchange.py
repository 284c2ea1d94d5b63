"""One HTTP/1.1 request to an engine over one connection of its own.

A general client costs more for each event of a stream than everything else in the gateway (the figures are in
DESIGN.md), so this one does only what an engine on a plain local connection needs. Connections are not kept: to
open one on loopback costs less than a token, and no request can meet a connection that the engine just closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.errors import EngineError

__all__ = ["Broken", "Exchange", "ResponseHead", "Unreachable", "open_exchange"]

_READ_BYTES = 65536
_MAX_HEAD_BYTES = 65536


class Unreachable(EngineError):
    """No connection: the request has not reached the engine."""


class Broken(EngineError):
    """The connection ended before the answer did."""


@dataclass(frozen=True)
class ResponseHead:
    """Header names in lower case."""

    status: int
    headers: dict[str, str]


class Exchange:
    """Read ``head`` once, then ``read`` until it returns nothing. ``abort`` may be called at any time, and twice."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._remaining: int | None = None  # of the body or of the chunk; None: until the connection ends
        self._is_chunked = False
        self._has_ended = False

    async def head(self) -> ResponseHead:
        try:
            raw = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken("the engine closed the connection before it answered") from error
        except asyncio.LimitOverrunError as error:
            raise Broken(f"the engine sent a head of more than {_MAX_HEAD_BYTES} bytes") from error
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        pieces = first.split(" ", 2)
        if len(pieces) < 2 or not pieces[0].startswith("HTTP/1.") or not pieces[1].isdigit():
            raise Broken(f"the engine answered {first[:80]!r}, expected HTTP/1.1")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "")
        if self._is_chunked:
            self._remaining = 0
        elif length.isdigit():
            self._remaining = int(length)
            self._has_ended = self._remaining == 0
        return ResponseHead(int(pieces[1]), headers)

    async def read(self) -> bytes:
        """The next bytes of the body, as soon as there are some; ``b""`` at its end, Broken if it is cut."""
        while not self._has_ended:
            if self._buffer and (body := self._take()):
                return body
            if self._has_ended:
                break
            try:
                data = await self._reader.read(_READ_BYTES)
            except ConnectionError as error:
                raise Broken("the engine reset the connection in the middle of its answer") from error
            if not data:
                if self._remaining is None:
                    self._has_ended = True
                    break
                raise Broken("the engine closed the connection in the middle of its answer")
            self._buffer += data
        return b""

    def _take(self) -> bytes:
        """Body bytes out of the buffer: what is there of the body, or of as many chunks as are there."""
        if not self._is_chunked:
            body, self._buffer = self._buffer, b""
            if self._remaining is not None:
                body = body[: self._remaining]
                self._remaining -= len(body)
                self._has_ended = self._remaining == 0
            return body
        pieces: list[bytes] = []
        buffer, at, remaining = self._buffer, 0, self._remaining or 0
        while at < len(buffer):
            if remaining:  # payload of a chunk, then its CR LF; both count in `remaining`
                payload = remaining - 2
                if payload > 0:
                    piece = buffer[at : at + payload]
                    pieces.append(piece)
                    at += len(piece)
                    remaining -= len(piece)
                else:
                    skipped = min(remaining, len(buffer) - at)
                    at += skipped
                    remaining -= skipped
                continue
            line_end = buffer.find(b"\r\n", at)
            if line_end < 0:
                break
            size_text = buffer[at:line_end].partition(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError:
                raise Broken(f"the engine sent {size_text[:20]!r} where a chunk's size belongs") from None
            at = line_end + 2
            if size == 0:  # trailers, if any, are not of interest: the connection is not used again
                self._has_ended = True
                break
            remaining = size + 2
        self._buffer, self._remaining = buffer[at:], remaining
        return b"".join(pieces)

    def abort(self) -> None:
        """Close at once; the engine sees its client leave and stops decoding."""
        self._writer.transport.abort()


async def open_exchange(
    host: str, port: int, method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes
) -> Exchange:
    """Connect and send one request. Raises Unreachable."""
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise Unreachable(f"the engine at {host}:{port} does not take connections: {error}") from error
    lines = [
        f"{method} {path} HTTP/1.1",
        f"host: {host}:{port}",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    lines += [f"{name}: {value}" for name, value in headers]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    return Exchange(reader, writer)
