"""What the gateway adds to an event, and how many events one core carries."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.soak.client import StreamResult, read_stream
from tests.soak.processes import cpu_s, run_fake_engine, run_sidecar_process
from tests.soak.row import Row

__all__ = ["measure_added_latency", "measure_events"]


async def _load(
    address: tuple[str, int], num_streams: int, num_events: int, every_s: float
) -> list[StreamResult]:
    body = {"max_tokens": num_events, "fake": {"delay_s": every_s, "is_stamped": True}}

    async def one(index: int) -> StreamResult:
        await asyncio.sleep(
            every_s * index / num_streams
        )  # spread, as engines' steps of many requests are not
        return await read_stream(address, body)

    return list(await asyncio.gather(*(one(index) for index in range(num_streams))))


def _quantile(results: list[StreamResult], share: float) -> float:
    delays = sorted(delay for result in results for delay in result.delays_s)
    return delays[min(len(delays) - 1, int(share * len(delays)))]


async def measure_added_latency(folder: Path) -> Row:
    """20 streams of 20 events a second, straight and through the gateway, in turns; the difference of the p99."""
    direct: list[StreamResult] = []
    passed: list[StreamResult] = []
    with run_fake_engine() as port, run_sidecar_process(folder, engine_port=port) as sidecar:
        for _ in range(3):
            direct += await _load(("127.0.0.1", port), 20, 100, 0.05)
            passed += await _load(sidecar.address, 20, 100, 0.05)
    shown = [
        f"p{int(share * 100)} {_quantile(r, share) * 1e3:.2f}"
        for r in (direct, passed)
        for share in (0.5, 0.99)
    ]
    added_ms = (_quantile(passed, 0.99) - _quantile(direct, 0.99)) * 1e3
    detail = (
        f"straight {shown[0]}, {shown[1]} ms; through {shown[2]}, {shown[3]} ms; {len(passed) * 100} events"
    )
    return Row("added to an event, p99", f"{added_ms:.2f} ms ({detail})", "<= 1 ms", added_ms <= 1.0)


async def measure_events(folder: Path) -> Row:
    """100 streams that together send about 5,500 events a second, one at a time; the gateway's processor time."""
    num_streams, num_events, every_s = 100, 400, 0.0165
    with (
        run_fake_engine() as port,
        run_sidecar_process(folder, "--max-in-flight", "200", engine_port=port) as sidecar,
    ):
        cpu_before_s, before_s = cpu_s(sidecar.process.pid), time.monotonic()
        results = await _load(sidecar.address, num_streams, num_events, every_s)
        wall_s, used_s = time.monotonic() - before_s, cpu_s(sidecar.process.pid) - cpu_before_s
    num = sum(result.num_events for result in results)
    is_whole = all(result.is_done and not result.has_error for result in results)
    per_core = num / used_s
    detail = (
        f"{num / wall_s:.0f} events/s delivered with {used_s / wall_s:.0%} of a core; all whole: {is_whole}"
    )
    return Row(
        "events a second of one core", f"{per_core:.0f} ({detail})", ">= 5000", per_core >= 5000 and is_whole
    )
