"""What a check at the lowest priority adds to the time between events of a saturated engine."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from tests.soak.client import read_gaps
from tests.soak.processes import run_sidecar_process
from tests.soak.row import Row

__all__ = ["measure_job_cost"]

_NUM_PLACES = 16


async def _gaps_s(address: tuple[str, int], num_s: float) -> list[float]:
    """Gaps between the events of 16 streams that follow one another without a pause, sorted."""
    end_s = time.monotonic() + num_s

    async def client() -> list[float]:
        found: list[float] = []
        while time.monotonic() < end_s:
            found += await read_gaps(address, {"max_tokens": 60, "fake": {"spin_us": 300}})
        return found

    return sorted(
        gap for gaps in await asyncio.gather(*(client() for _ in range(_NUM_PLACES))) for gap in gaps
    )


def _p99_ms(gaps: list[float]) -> float:
    return gaps[int(0.99 * len(gaps))] * 1e3


async def measure_job_cost(folder: Path) -> list[Row]:
    """A job that computes without a pause, beside 16 streams of an engine that computes too, in turns.

    Once with as many places as streams (saturated: the job stands still), once with one place more (the job runs).
    """
    rows = []
    for places, name in ((_NUM_PLACES, "all places taken"), (_NUM_PLACES + 1, "one place free")):
        without, beside = [], []
        with run_sidecar_process(folder / str(places), "--max-in-flight", str(places)) as sidecar:
            await _gaps_s(sidecar.address, 0.5)
            for _ in range(4):
                without.append(_p99_ms(await _gaps_s(sidecar.address, 3.0)))
                body = {"kind": "check", "reason": "soak", "options": {"how": "spin", "steps": 10**9}}
                answer = await asyncio.to_thread(sidecar.admin.post, "/jobs", json=body)
                answer.raise_for_status()
                await asyncio.sleep(0.7)
                beside.append(_p99_ms(await _gaps_s(sidecar.address, 3.0)))
                path = f"/jobs/{answer.json()['id']}/cancel"
                await asyncio.to_thread(sidecar.admin.post, path, json={"reason": "soak"})
                await asyncio.sleep(0.5)
        ratios = [b / a for a, b in zip(without, beside, strict=True)]
        ratio = statistics.median(ratios)
        shown = ", ".join(f"{100 * (r - 1):+.1f}%" for r in ratios)
        measured = (
            f"{100 * (ratio - 1):+.1f}% (turns {shown}; p99 without {statistics.median(without):.2f} ms)"
        )
        rows.append(Row(f"a job's cost at the p99 gap, {name}", measured, "<= 5%", ratio <= 1.05))
    return rows
