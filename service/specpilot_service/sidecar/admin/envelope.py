"""What surrounds every admin request: its id, its key, its size, and the last net for errors."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpilot_service.errors import BodyTooLarge, error_reply
from specpilot_service.sidecar.core import Sidecar
from specpilot_service.sidecar.errors import SidecarError
from specpilot_service.sidecar.gateway.call import request_id_of

__all__ = ["OPEN_PATHS", "AdminEnvelope"]

OPEN_PATHS = frozenset({"/livez", "/readyz", "/startupz"})
"""A kubelet has no key; these tell a state and nothing more."""


class AdminEnvelope:
    """Plain ASGI. Without a key nothing is reached, whether the path exists or not."""

    def __init__(self, app: ASGIApp, sidecar: Sidecar) -> None:
        self._app, self._sidecar = app, sidecar

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        has_started, num_bytes = False, 0

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        async def limited() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._sidecar.settings.max_body_bytes:
                raise BodyTooLarge(num_bytes, self._sidecar.settings.max_body_bytes)
            return message

        try:
            path = scope["path"]
            is_open = path in OPEN_PATHS or (path == "/metrics" and self._sidecar.settings.open_metrics)
            if not is_open:
                state["principal"] = self._sidecar.key_ring.authenticate(headers.get("authorization"))
            await self._app(scope, limited, send_with_id)
        except SidecarError as error:
            if has_started:
                raise
            await _answer(error, send_with_id)
        except Exception as error:
            if has_started:
                raise
            await error_reply(error, request_id).response()(scope, receive, send_with_id)


async def _answer(error: SidecarError, send: Send) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(error.body)), **error.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": error.body})
