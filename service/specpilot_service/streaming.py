"""Server-sent events, and the watch for clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specpilot_service.errors import error_reply
from specpilot_service.workers import FrameStream

__all__ = ["USAGE_COMMENT", "USAGE_HEADER", "EventStream", "event_frame", "until_disconnect"]

T = TypeVar("T")

USAGE_HEADER = "x-specpilot-usage"
"""A gateway that counts tokens sends it with the value "comment"; clients need not."""

USAGE_COMMENT = b": specpilot-usage "
"""Opens the comment that then ends a stream; the usage object follows on the same line."""


def event_frame(data: str) -> bytes:
    """One event. ``data`` is JSON on one line, so a frame ends at its blank line, characters whole."""
    # Some clients split lines at these three as well. In JSON they occur only inside strings, where a \\u
    # escape means the same.
    for separator in "\u0085\u2028\u2029":
        data = data.replace(separator, f"\\u{ord(separator):04x}")
    return f"data: {data}\n\n".encode()


_DONE_FRAME = event_frame("[DONE]")


async def until_disconnect(work: Awaitable[T], receive: Receive) -> T:
    """Await ``work``; if the client leaves first, stop waiting and raise ClientDisconnect.

    The request body must have been read: the next message of the connection is then its end.

    A client that shuts down only its sending side counts as one that has left. Both send the same FIN, and until
    something is written to it a client that reads on looks like one that is gone; waiting for the first write would
    keep requests of lost clients in the queue and decode whole answers for nobody.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends ``first``, then ``frames`` as they come; a client that leaves or stalls cancels the work.

    A failure after the first byte cannot change the status any more: it is sent as a last frame with an
    ``error`` object and without ``[DONE]``, so that no client takes a cut answer for a whole one.

    Parameters
    ----------
    stall_timeout_s
        How long one frame may wait for the client to take it.
    on_disconnect
        Called when the client left or stalled before the end.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        first: bytes,
        frames: FrameStream,
        *,
        request_id: str,
        stall_timeout_s: float,
        on_disconnect: Callable[[], None],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first, self._frames = first, frames
        self._request_id, self._stall_timeout_s, self._on_disconnect = (
            request_id,
            stall_timeout_s,
            on_disconnect,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(self._send_all(send), receive)
        except ClientDisconnect:
            self._on_disconnect()
        finally:
            self._frames.cancel()

    async def _send_all(self, send: Send) -> None:
        async def put(body: bytes, *, is_last: bool = False) -> None:
            try:
                async with asyncio.timeout(self._stall_timeout_s):
                    await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            except TimeoutError:
                raise ClientDisconnect from None

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await put(self._first)
        last = _DONE_FRAME
        while True:
            try:
                frame = await anext(self._frames)
            except StopAsyncIteration:
                break
            except Exception as error:
                last = event_frame(error_reply(error, self._request_id).body.decode())
                break
            await put(frame)
        await put(last, is_last=True)
