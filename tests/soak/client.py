"""A client that reads event streams as bytes, light enough to load the gateway."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["StreamResult", "read_gaps", "read_stream", "reset_before_first_byte"]


@dataclass
class StreamResult:
    """``delays_s`` are the times between an event's stamp and its arrival here."""

    num_events: int = 0
    is_done: bool = False
    has_error: bool = False
    error_at_s: float | None = None
    status: int = 0
    delays_s: list[float] = field(default_factory=list)


def _request(body: dict[str, Any]) -> bytes:
    content = json.dumps({"model": "fake", "prompt": "x", "stream": True, **body}).encode()
    return (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        + content
    )


async def read_stream(address: tuple[str, int], body: dict[str, Any]) -> StreamResult:
    """Ask for a stream and read it to its end."""
    result = StreamResult()
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(_request(body))
        result.status = int((await reader.readline()).split()[1])
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                if line == b"0\r\n":
                    break
                continue
            now_s = time.monotonic()
            if b"sent_ns=" in line:
                sent_ns = int(line.rpartition(b"sent_ns=")[2].partition(b" ")[0])
                result.delays_s.append(now_s - sent_ns / 1e9)
            if b"[DONE]" in line:
                result.is_done = True
            elif b'"error"' in line:
                result.has_error, result.error_at_s = True, now_s
            else:
                result.num_events += 1
    except ConnectionError:
        pass
    finally:
        writer.close()
    return result


async def read_gaps(address: tuple[str, int], body: dict[str, Any]) -> list[float]:
    """Seconds between the arrivals of a stream's events."""
    reader, writer = await asyncio.open_connection(*address)
    gaps, last_s = [], None
    try:
        writer.write(_request(body))
        while (line := await reader.readline()) and b"[DONE]" not in line:
            if line.startswith(b"data: "):
                now_s = time.monotonic()
                if last_s is not None:
                    gaps.append(now_s - last_s)
                last_s = now_s
    finally:
        writer.close()
    return gaps


async def reset_before_first_byte(address: tuple[str, int], body: dict[str, Any], wait_s: float) -> None:
    """Send a request, wait, and reset the connection."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(_request(body))
    await writer.drain()
    await asyncio.sleep(wait_s)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    del reader
