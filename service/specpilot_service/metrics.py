"""Prometheus metrics of one service; every app has its own registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from specpilot.engines.base import Engine, StepRecord

__all__ = ["ServiceMetrics"]

_ACCEPT_LENGTH_BUCKETS = tuple(float(length) for length in range(1, 17))
_STEP_BUCKETS_S = (
    0.001,
    0.002,
    0.004,
    0.006,
    0.008,
    0.012,
    0.016,
    0.024,
    0.032,
    0.048,
    0.064,
    0.128,
    0.256,
    0.512,
    1.0,
)
_FIRST_TOKEN_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)


class ServiceMetrics:
    """Names start with ``specpilot_``; times are in seconds, as Prometheus wants them. Thread safe."""

    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "specpilot_requests", "HTTP requests answered", ["route", "status"], registry=self.registry
        )
        self.cancelled = Counter(
            "specpilot_requests_cancelled",
            "Requests whose client left before the end",
            registry=self.registry,
        )
        self.prompt_tokens = Counter("specpilot_prompt_tokens", "Tokens of prompts", registry=self.registry)
        self.generated_tokens = Counter(
            "specpilot_generated_tokens", "Tokens of answers", ["drafter"], registry=self.registry
        )
        self.accept_length = Histogram(
            "specpilot_accept_length_tokens",
            "Committed tokens a verify step, bonus included; its mean is tau",
            ["drafter"],
            buckets=_ACCEPT_LENGTH_BUCKETS,
            registry=self.registry,
        )
        self.step_seconds = Histogram(
            "specpilot_step_seconds",
            "Wall clock of a step, draft and verify",
            ["drafter"],
            buckets=_STEP_BUCKETS_S,
            registry=self.registry,
        )
        self.fallbacks = Counter(
            "specpilot_fallbacks",
            "Requests decoded without the mechanisms they asked for, which the engine does not keep for them",
            registry=self.registry,
        )
        self.first_token_seconds = Histogram(
            "specpilot_time_to_first_token_seconds",
            "From the request's arrival to its first token",
            buckets=_FIRST_TOKEN_BUCKETS_S,
            registry=self.registry,
        )
        running = Gauge("specpilot_requests_running", "Requests being decoded", registry=self.registry)
        running.set_function(lambda: engine.health().num_running)
        waiting = Gauge(
            "specpilot_requests_waiting", "Requests waiting for the engine", registry=self.registry
        )
        waiting.set_function(lambda: engine.health().num_waiting)

    def observe_step(self, drafter: str, step: StepRecord) -> None:
        self.accept_length.labels(drafter).observe(step.num_correct_drafts + 1)
        self.step_seconds.labels(drafter).observe(step.total_us / 1e6)
