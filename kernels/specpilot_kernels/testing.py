"""Timing for the benches."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["NUM_BLOCKS", "PAUSE_S", "cpu_name", "quantile", "time_in_turns"]

NUM_BLOCKS = 5
PAUSE_S = 0.02


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], warm_up: int, samples: int
) -> dict[str, list[float]]:
    """Times in us, sorted, for every call.

    Calls take turns in blocks, with a pause before each: idle threads of torch and of numba may go on spinning for a
    while and would take the cores from each other.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for block in range(NUM_BLOCKS):
        for name in calls if block % 2 else reversed(list(calls)):
            time.sleep(PAUSE_S)
            for sample in range(warm_up + samples // NUM_BLOCKS):
                start = time.perf_counter()
                calls[name]()
                if sample >= warm_up:
                    times[name].append((time.perf_counter() - start) * 1e6)
    return {name: sorted(values) for name, values in times.items()}


def quantile(values: Sequence[float], fraction: float) -> float:
    """Of sorted values."""
    return values[min(int(fraction * len(values)), len(values) - 1)]


def cpu_name() -> str:
    """Model name of the CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
