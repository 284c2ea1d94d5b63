"""Traces by OpenTelemetry, off unless ``--otlp-endpoint`` is given: OTLP over HTTP, from a thread of the exporter.

Spans: ``gateway.request`` (child of the client's ``traceparent``), in it ``gateway.queue`` (waiting for a place) and
``gateway.engine`` (connect to last byte; its id goes to the engine as ``traceparent``), and ``switch`` with its states
as events. Nothing of a prompt, an answer or a key is in them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from specpilot.errors import ConfigError

__all__ = ["NO_TRACING", "NoTracing", "OtlpTracing", "Span", "Tracing", "make_tracing"]


class Span(Protocol):
    def set_attribute(self, key: str, value: str | int | float | bool) -> None: ...

    def add_event(self, name: str, attributes: Mapping[str, str] | None = None) -> None: ...


class Tracing(Protocol):
    """``traceparent`` is the header of W3C Trace Context; "" without one."""

    def span(
        self, name: str, *, traceparent: str | None = None, **attributes: str | int
    ) -> contextlib.AbstractContextManager[Span]:
        """A span of what runs inside; its parent is the one that runs now, or the one that ``traceparent`` names."""
        ...

    def traceparent(self, received: str) -> str:
        """What to send on: the running span's, or what was received where nothing is traced."""
        ...

    def close(self) -> None: ...


class _NoSpan:
    def set_attribute(self, key: str, value: str | int | float | bool) -> None: ...

    def add_event(self, name: str, attributes: Mapping[str, str] | None = None) -> None: ...


class NoTracing:
    """The client's trace context is passed on as it came."""

    def __init__(self) -> None:
        self._nothing = contextlib.nullcontext(_NoSpan())

    def span(
        self, name: str, *, traceparent: str | None = None, **attributes: str | int
    ) -> contextlib.AbstractContextManager[Span]:
        return self._nothing

    def traceparent(self, received: str) -> str:
        return received

    def close(self) -> None: ...


NO_TRACING = NoTracing()


class OtlpTracing:
    """Sends spans in batches; a collector that is away costs spans and no request."""

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise ConfigError(
                f"otlp_endpoint: {error}; install the extra otel: pip install 'specpilot[otel]'"
            ) from None
        resource = Resource.create({"service.name": "specpilot-sidecar"})
        self._provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=5)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("specpilot")
        self._context: Any = TraceContextTextMapPropagator()
        self._is_server: Any = trace.SpanKind.SERVER

    @contextlib.contextmanager
    def span(self, name: str, *, traceparent: str | None = None, **attributes: str | int) -> Iterator[Span]:
        options: dict[str, Any] = {"attributes": attributes}
        if traceparent is not None:
            options |= {
                "context": self._context.extract({"traceparent": traceparent}),
                "kind": self._is_server,
            }
        # A client that leaves is no error of ours; what fails is in the attributes.
        with self._tracer.start_as_current_span(name, record_exception=False, **options) as span:
            yield span

    def traceparent(self, received: str) -> str:
        carrier: dict[str, str] = {}
        self._context.inject(carrier)
        return carrier.get("traceparent", received)

    def close(self) -> None:
        """Send what is left; blocks for seconds at most."""
        self._provider.force_flush(3000)
        self._provider.shutdown()


def make_tracing(endpoint: str | None) -> Tracing:
    """Raises ConfigError where the extra is not installed."""
    return NO_TRACING if endpoint is None else OtlpTracing(endpoint)
