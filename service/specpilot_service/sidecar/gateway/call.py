"""What the gateway reads of a request before it passes the bytes on."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from specpilot_service.sidecar.errors import SidecarError

__all__ = ["Call", "read_body", "read_call", "request_id_of"]

# Only what is safe in a log line and a header; anything else gets an id of ours.
_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

# W3C Trace Context, level 1: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True)
class Call:
    """One inference request. ``body`` goes to the engine as it came; ``traceparent`` is "" without one."""

    path: str
    model: str
    is_stream: bool
    body: bytes
    traceparent: str = ""


def request_id_of(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _CLIENT_ID.fullmatch(given) else uuid.uuid4().hex


async def read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    headers = Headers(scope=scope)
    declared = headers.get("content-length", "")
    if declared and "transfer-encoding" in headers:
        # Two lengths: whoever stands in front may have read the other one (RFC 9112, 6.3).
        raise SidecarError(
            *(400, "invalid_body"),
            "Content-Length and Transfer-Encoding: got both, expected one.",
            closes=True,
        )
    parts: list[bytes] = []
    num_bytes = int(declared) if declared.isdecimal() else 0
    is_more = num_bytes <= max_bytes
    num_bytes = 0 if is_more else num_bytes
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise SidecarError(499, "client_closed", "the client closed the connection")
        parts.append(message.get("body", b""))
        num_bytes += len(parts[-1])
        is_more = message.get("more_body", False) and num_bytes <= max_bytes
    if num_bytes > max_bytes:
        raise SidecarError(
            413, "body_too_large", f"The body has {num_bytes} bytes or more, at most {max_bytes} are taken."
        )
    return b"".join(parts)


def read_call(path: str, body: bytes, traceparent: str = "") -> Call:
    """The model's name and whether it streams; everything else is the engine's to judge."""

    def wrong(message: str, code: str = "invalid_body", param: str | None = None) -> SidecarError:
        return SidecarError(400, code, message, param=param)

    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise wrong("The body is not JSON; expected a JSON object with the field 'model'.") from None
    if not isinstance(fields, dict):
        raise wrong("Expected a JSON object as body.")
    model = fields.get("model")
    if model is None:
        raise wrong("model is required", "missing_parameter", "model")
    if not isinstance(model, str):
        raise wrong(f"model: got {model!r:.80}, expected a string", "invalid_value", "model")
    return Call(path, model, fields.get("stream") is True, body, _safe_trace(traceparent))


def _safe_trace(traceparent: str) -> str:
    return traceparent if _TRACEPARENT.fullmatch(traceparent) else ""
