"""What the gateway adds to an event, and how many events one core carries."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from tests.soak.client import StreamResult, read_stream
from tests.soak.processes import cpu_s, run_fake_engine, run_sidecar_process
from tests.soak.row import Row

__all__ = ["added_ms", "measure_added_latency", "measure_events", "us_per_event"]


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


async def added_ms(
    engine: tuple[str, int], gateway: tuple[str, int], num_rounds: int = 5
) -> tuple[list[float], list[float], list[float]]:
    """p99 straight, p99 through the gateway, and their difference, each a value a round.

    20 streams of 20 events a second take both ways at the same time, so that what else the machine does hits both.
    """
    straight, through = [], []
    for _ in range(num_rounds):
        direct, passed = await asyncio.gather(_load(engine, 20, 60, 0.05), _load(gateway, 20, 60, 0.05))
        if not all(result.is_done and len(result.delays_s) == 60 for result in (*direct, *passed)):
            raise RuntimeError("an answer is not whole")
        straight.append(_quantile(direct, 0.99) * 1e3)
        through.append(_quantile(passed, 0.99) * 1e3)
    return straight, through, [b - a for a, b in zip(straight, through, strict=True)]


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


async def measure_added_latency(folder: Path) -> Row:
    """The median over rounds of what the gateway adds at the p99."""
    with run_fake_engine() as port, run_sidecar_process(folder, engine_port=port) as sidecar:
        straight, _, added = await added_ms(("127.0.0.1", port), sidecar.address)
    middle = statistics.median(added)
    detail = f"rounds {_list(added)}; straight {_list(straight)}"
    return Row("added to an event, p99", f"{middle:.2f} ms ({detail})", "<= 1 ms", middle <= 1.0)


async def us_per_event(address: tuple[str, int], pid: int, every_s: float) -> tuple[float, float]:
    """Processor time of the gateway's process an event, and events a second delivered, over 50 streams."""
    before_s, start_s = cpu_s(pid), time.monotonic()
    results = await _load(address, 50, 100, every_s)
    wall_s, used_s = time.monotonic() - start_s, cpu_s(pid) - before_s
    num = sum(result.num_events for result in results)
    if not all(result.is_done and not result.has_error for result in results):
        raise RuntimeError("an answer is not whole")
    return used_s / num * 1e6, num / wall_s


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
