"""What a client of the engine costs for each event: the gateway's own against httpx."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from specpilot_service.sidecar.gateway.exchange import open_exchange
from tests.soak.processes import run_fake_engine
from tests.soak.row import Row

__all__ = ["compare_clients"]

_NUM_STREAMS, _NUM_EVENTS = 50, 200
_BODY = {"model": "fake", "prompt": "x", "stream": True, "max_tokens": _NUM_EVENTS, "fake": {"delay_s": 0.02}}


async def _thin(port: int) -> int:
    exchange = await open_exchange(
        "127.0.0.1", port, "POST", "/v1/completions", [], json.dumps(_BODY).encode()
    )
    await exchange.head()
    num = 0
    while data := await exchange.read():
        num += data.count(b"\n\n")
    exchange.abort()
    return num


async def _httpx(port: int, client: httpx.AsyncClient) -> int:
    num = 0
    async with client.stream("POST", f"http://127.0.0.1:{port}/v1/completions", json=_BODY) as answer:
        async for data in answer.aiter_raw():
            num += data.count(b"\n\n")
    return num


async def _us_per_event(read: Callable[[], Awaitable[int]]) -> float:
    before_s = time.process_time()
    num = sum(await asyncio.gather(*(read() for _ in range(_NUM_STREAMS))))
    assert num == _NUM_STREAMS * (_NUM_EVENTS + 1)
    return (time.process_time() - before_s) / num * 1e6


async def compare_clients(folder: Path) -> Row:
    """Processor time of this process while it reads 50 streams, each client in turns."""
    thin, plain = [], []
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=100)) as client:
        with run_fake_engine() as port:
            for _ in range(2):
                thin.append(await _us_per_event(lambda: _thin(port)))
                plain.append(await _us_per_event(lambda: _httpx(port, client)))
    measured = f"own {min(thin):.0f} us, httpx {min(plain):.0f} us of processor time an event"
    return Row("client to the engine", measured, "own is cheaper", min(thin) < min(plain))
