"""The client's side of one request: the answer's head, bytes, keep-alive comments, and errors at any point."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from starlette.types import Send

from specpilot_service.sidecar.errors import SidecarError
from specpilot_service.streaming import event_frame

__all__ = ["DONE_FRAME", "ClientSide"]

DONE_FRAME = event_frame("[DONE]")
_KEEP_ALIVE = b": keep-alive\n\n"
_STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class ClientSide:
    """One answer.

    Every write of a stream is whole events, so a comment or an error frame may follow any of them. A stream that
    waits for ``keep_alive_s`` gets its head and a comment; what fails later can only be an error frame then, which
    is followed by ``[DONE]``: clients that wait for it end, and clients that read frames see the error.
    """

    def __init__(self, send: Send, request_id: str, *, is_stream: bool) -> None:
        self._send, self._request_id, self.is_stream = send, request_id, is_stream
        self.status = 0
        self.has_ended = False
        self.written_at_s = time.monotonic()
        self.blocked_since_s: float | None = None

    @property
    def has_started(self) -> bool:
        return self.status != 0

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        shown = {**headers, "x-request-id": self._request_id}
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in shown.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def start_stream(self) -> None:
        await self.start(200, _STREAM_HEADERS)

    async def write(self, body: bytes, *, is_last: bool = False) -> None:
        now_s = time.monotonic()
        self.written_at_s = self.blocked_since_s = now_s
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
        self.blocked_since_s = None
        self.has_ended = self.has_ended or is_last

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole answer at once."""
        await self.start(status, {**headers, "content-length": str(len(body))})
        await self.write(body, is_last=True)

    async def fail(self, error: SidecarError) -> None:
        """Tell the client: with a status before the first byte, else in the stream."""
        if self.has_ended:
            return
        if not self.has_started:
            await self.answer(error.status, {"content-type": "application/json", **error.headers}, error.body)
        elif self.is_stream:
            await self.write(event_frame(error.body.decode()) + DONE_FRAME, is_last=True)
        else:
            raise error  # half a JSON body: the server closes the connection, which no client takes for an answer

    async def keep_alive(self, every_s: float) -> None:
        """Runs beside a stream: a comment whenever nothing was written for so long."""
        while True:
            left_s = self.written_at_s + every_s - time.monotonic()
            if left_s > 0:
                await asyncio.sleep(left_s)
            elif self.has_ended:
                return
            elif self.blocked_since_s is not None:
                await asyncio.sleep(every_s)  # the client takes no bytes as it is
            else:
                if not self.has_started:
                    await self.start_stream()
                await self.write(_KEEP_ALIVE)
