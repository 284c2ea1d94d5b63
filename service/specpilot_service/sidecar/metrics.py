"""Prometheus metrics of the sidecar, and what they say about the last minute."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from specpilot_service.schemas.admin import SwitchState

__all__ = ["SidecarMetrics"]

_FIRST_BYTE_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_STATES: tuple[SwitchState, ...] = (
    "pending",
    "draining",
    "starting",
    "canary",
    "gating",
    "promoting",
    "applied",
    "rolling_back",
    "rolled_back",
    "cancelled",
    "failed",
)


class SidecarMetrics:
    """Names start with ``specpilot_gateway_`` or ``specpilot_sidecar_``, so that they stand beside the engine's own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "specpilot_gateway_requests", "Requests answered", ["route", "status"], registry=registry
        )
        self.cancelled = Counter(
            "specpilot_gateway_requests_cancelled", "Requests whose client left", registry=registry
        )
        self.engine_failures = Counter(
            "specpilot_gateway_engine_failures", "Requests on which the engine broke off", registry=registry
        )
        self.events = Counter(
            "specpilot_gateway_events", "Server-sent events passed through", registry=registry
        )
        self.tokens = Counter("specpilot_gateway_tokens", "Tokens by kind", ["kind"], registry=registry)
        self.first_byte_seconds = Histogram(
            "specpilot_gateway_first_byte_seconds",
            "From a request's arrival to the head of the engine's answer",
            buckets=_FIRST_BYTE_BUCKETS_S,
            registry=registry,
        )
        self.in_flight = Gauge(
            "specpilot_gateway_requests_in_flight", "Requests in engines", registry=registry
        )
        self.waiting = Gauge(
            "specpilot_gateway_requests_waiting",
            "Requests that wait for a place or an engine",
            registry=registry,
        )
        self.is_ready = Gauge("specpilot_sidecar_ready", "1 when /readyz says 200", registry=registry)
        self.revision = Gauge("specpilot_sidecar_revision", "Current revision", registry=registry)
        self.engine_restarts = Counter(
            "specpilot_sidecar_engine_restarts", "Engine processes started again", registry=registry
        )
        self.breaker_open = Gauge(
            "specpilot_gateway_breaker_open",
            "1 while a routed engine's breaker is not closed",
            registry=registry,
        )
        self._switch_state = Gauge(
            "specpilot_sidecar_switch_state",
            "1 for the state of the last switch",
            ["state"],
            registry=registry,
        )
        self._checks = Gauge(
            "specpilot_sidecar_check",
            "Last verdict of a check: 1 passed, 0 failed, -1 not checked",
            ["check"],
            registry=registry,
        )
        for check in ("audit", "ceiling"):
            self._checks.labels(check).set(-1)
        self.jobs = Counter("specpilot_sidecar_jobs", "Jobs that ended", ["kind", "state"], registry=registry)
        self.job_running = Gauge(
            "specpilot_sidecar_job_running", "1 while a job runs, paused or not", registry=registry
        )
        self.job_paused_seconds = Counter(
            "specpilot_sidecar_job_paused_seconds", "Time jobs stood still for requests", registry=registry
        )

    def show_switch(self, state: SwitchState) -> None:
        for other in _STATES:
            self._switch_state.labels(other).set(int(other == state))

    def show_check(self, name: str, verdict: str) -> None:
        self._checks.labels(name).set({"passed": 1, "failed": 0}.get(verdict, -1))
