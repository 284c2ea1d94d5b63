"""Is an engine ready? Only if it has just decoded a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from specpilot.errors import EngineError
from specpilot_service.sidecar.gateway.exchange import open_exchange

__all__ = ["decode_one_token", "fetch"]

_MAX_BYTES = 8 * 2**20


async def fetch(
    host: str,
    port: int,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
) -> tuple[int, bytes]:
    """Status and body of one small request. Raises EngineError, also when it takes longer than ``timeout_s``."""
    content = b"" if body is None else json.dumps(body).encode()
    try:
        async with asyncio.timeout(timeout_s):
            sent = [("content-type", "application/json"), *(headers or {}).items()]
            exchange = await open_exchange(host, port, method, path, sent, content)
            try:
                head = await exchange.head()
                received = b""
                while (part := await exchange.read()) and len(received) < _MAX_BYTES:
                    received += part
                return head.status, received
            finally:
                exchange.abort()
    except TimeoutError:
        raise EngineError(f"{path}: the engine did not answer in {timeout_s:.0f} s") from None


async def decode_one_token(host: str, port: int, timeout_s: float) -> list[dict[str, Any]]:
    """Ask for the models and for one token of the first; the model cards. Raises EngineError with what it said."""
    status, body = await fetch(host, port, "GET", "/v1/models", timeout_s=timeout_s)
    try:
        cards = json.loads(body)["data"]
        model = cards[0]["id"]
    except (ValueError, LookupError, TypeError):
        raise EngineError(f"/v1/models: got {status} {body[:200]!r}, expected a list of models") from None
    request = {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    status, body = await fetch(host, port, "POST", "/v1/completions", request, timeout_s=timeout_s)
    try:
        is_token = status == 200 and json.loads(body)["choices"][0]["finish_reason"] in ("length", "stop")
    except (ValueError, LookupError, TypeError):
        is_token = False
    if not is_token:
        raise EngineError(f"/v1/completions: got {status} {body[:200]!r}, expected one token")
    return list(cards)
