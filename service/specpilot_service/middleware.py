"""What surrounds every request: its id, its size limit, its metrics, and the last net for errors."""

from __future__ import annotations

import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpilot_service.errors import BodyTooLarge, error_reply
from specpilot_service.metrics import ServiceMetrics

__all__ = ["RequestEnvelope"]

# Only what is safe in a log line and a header; anything else gets an id of ours.
_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestEnvelope:
    """Plain ASGI, so that the connection's own messages (a client that leaves) reach the routes.

    Sets ``request.state.request_id`` and ``request.state.arrived_at`` (``time.perf_counter`` seconds).
    """

    def __init__(self, app: ASGIApp, *, metrics: ServiceMetrics, max_body_bytes: int) -> None:
        self._app, self._metrics, self._max_body_bytes = app, metrics, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _CLIENT_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {}).update(request_id=request_id, arrived_at=time.perf_counter())
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            declared = headers.get("content-length", "")
            if declared.isdecimal():
                self._check_size(int(declared))
            await self._app(scope, self._limited(receive), send_with_id)
        except Exception as error:
            if status:
                raise  # too late for another status: the server logs it and closes the connection
            await error_reply(error, request_id).response()(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._metrics.requests.labels(route, str(status)).inc()

    def _limited(self, receive: Receive) -> Receive:
        """``receive`` that counts: a chunked body declares no length."""
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            self._check_size(num_bytes)
            return message

        return counted

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self._max_body_bytes:
            raise BodyTooLarge(num_bytes, self._max_body_bytes)
