"""What happened in the last minute, out of counters that are read every two seconds."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict, deque
from dataclasses import dataclass

from specpilot.errors import EngineError
from specpilot_service.schemas.admin import Traffic
from specpilot_service.sidecar.engines.probe import fetch
from specpilot_service.sidecar.events import EventBus
from specpilot_service.sidecar.fleet import Fleet
from specpilot_service.sidecar.metrics import SidecarMetrics

__all__ = ["TrafficMeter", "sum_samples"]

log = logging.getLogger(__name__)

_EVERY_S = 2.0
_WINDOW_S = 60.0
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})?\s+([0-9.eE+-]+|NaN|[+-]Inf)$", re.MULTILINE)


def sum_samples(exposition: str) -> dict[str, float]:
    """Prometheus text to name -> value, summed over labels."""
    sums: dict[str, float] = defaultdict(float)
    for name, value in _SAMPLE.findall(exposition):
        sums[name] += float(value)
    return dict(sums)


@dataclass(frozen=True)
class _Reading:
    at_s: float
    engine_id: str
    counters: dict[str, float]


class TrafficMeter:
    """``engine_text`` is the stable engine's own metrics as it last gave them, for ``/metrics``."""

    def __init__(self, fleet: Fleet, metrics: SidecarMetrics, bus: EventBus) -> None:
        self._fleet, self._metrics, self._bus = fleet, metrics, bus
        self._readings: deque[_Reading] = deque()
        self.engine_text = b""

    async def run(self) -> None:
        while True:
            await self.read()
            if self._bus.num_readers:
                self._bus.publish("traffic", self.now().model_dump(mode="json"))
            await asyncio.sleep(_EVERY_S)

    async def read(self) -> None:
        """Take one reading. An engine without metrics leaves its part None."""
        engine = self._fleet.stable
        upstream = None if engine is None else engine.upstream
        counters: dict[str, float] = {}
        self.engine_text = b""
        if upstream is not None:
            try:
                status, body = await fetch(upstream.host, upstream.port, "GET", "/metrics", timeout_s=2.0)
                if status == 200:
                    self.engine_text = body
                    counters = sum_samples(body.decode(errors="replace"))
            except EngineError as error:
                log.debug("engine metrics: %s", error)
        for metric in self._metrics.registry.collect():
            for sample in metric.samples:
                counters[sample.name] = counters.get(sample.name, 0.0) + sample.value
                if sample.name == "specpilot_gateway_first_byte_seconds_bucket":
                    counters[f"le {sample.labels['le']}"] = sample.value
                if sample.name == "specpilot_gateway_requests_total" and sample.labels["status"] == "429":
                    counters["refused"] = counters.get("refused", 0.0) + sample.value
        now_s = time.monotonic()
        self._readings.append(_Reading(now_s, "" if engine is None else engine.id, counters))
        while self._readings[0].at_s < now_s - _WINDOW_S:
            self._readings.popleft()

    def now(self) -> Traffic:
        router = self._fleet.router
        waiting = router.num_waiting
        is_held = not router.routed
        return Traffic(
            num_in_flight=sum(len(upstream.flights) for upstream in router.routed),
            num_queued=0 if is_held else waiting,
            num_held=waiting if is_held else 0,
            requests_per_s=self._rate("specpilot_gateway_requests_total") or 0.0,
            refused_per_s=self._rate("refused") or 0.0,
            tokens_per_s=self._rate("specpilot_generated_tokens_total"),
            tau=self._mean("specpilot_accept_length_tokens"),
            step_ms=_scaled(self._mean("specpilot_step_seconds"), 1e3),
            first_event_ms_p50=self._quantile(0.5),
            first_event_ms_p99=self._quantile(0.99),
        )

    def _growth(self, name: str) -> tuple[float, float] | None:
        """How much a counter grew in the window, and the window's seconds; None without two readings of it."""
        if not self._readings:
            return None
        last = self._readings[-1]
        same = [r for r in self._readings if r.engine_id == last.engine_id and name in r.counters]
        if len(same) < 2 or name not in last.counters:
            return None
        grown = last.counters[name] - same[0].counters[name]
        return (grown, last.at_s - same[0].at_s) if grown >= 0 else None

    def _rate(self, name: str) -> float | None:
        growth = self._growth(name)
        return None if growth is None else growth[0] / growth[1]

    def _mean(self, name: str) -> float | None:
        total, count = self._growth(f"{name}_sum"), self._growth(f"{name}_count")
        return None if total is None or count is None or count[0] == 0 else total[0] / count[0]

    def _quantile(self, share: float) -> float | None:
        """Milliseconds; linear inside a bucket of the histogram, so no finer than its buckets."""
        last = self._readings[-1].counters if self._readings else {}
        limits = sorted(float(name.removeprefix("le ")) for name in last if name.startswith("le "))
        grown = [(limit, self._growth(f"le {_le(limit)}")) for limit in limits]
        counts = [(limit, growth[0]) for limit, growth in grown if growth is not None]
        if not counts or counts[-1][1] == 0:
            return None
        wanted, below_s, below = share * counts[-1][1], 0.0, 0.0
        for limit_s, count in counts:
            if count >= wanted:
                if limit_s == float("inf"):
                    return below_s * 1e3
                inside = (wanted - below) / (count - below) if count > below else 1.0
                return (below_s + inside * (limit_s - below_s)) * 1e3
            below_s, below = limit_s, count
        return None


def _le(limit: float) -> str:
    return "+Inf" if limit == float("inf") else str(limit)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
