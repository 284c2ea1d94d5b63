"""Traces: what a local OTLP receiver gets, and that nothing is traced unless it is asked for."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from specpilot.errors import ConfigError
from specpilot_service.sidecar.tracing import NO_TRACING, make_tracing
from tests.service.live_server import wait_until
from tests.service.sidecar.harness import LiveSidecar, fake_profile, run_sidecar

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
TEXT: dict[str, Any] = {"model": "fake", "prompt": "a secret prompt", "max_tokens": 3, "stream": True}


@contextlib.contextmanager
def run_receiver() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the spans that have come."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            spans.extend(
                span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server: LiveSidecar, **headers: str) -> None:
    assert server.client.post("/v1/completions", json=TEXT, headers=headers).status_code == 200


def attributes(span: Any) -> dict[str, Any]:
    return {item.key: item.value.string_value or item.value.int_value for item in span.attributes}


def test_a_request_and_a_switch_are_traced(tmp_path: Path) -> None:
    with run_receiver() as (endpoint, spans):
        profiles = [fake_profile("a"), fake_profile("b")]
        with run_sidecar(tmp_path, profiles, otlp_endpoint=endpoint) as server:
            ask(server, traceparent=TRACEPARENT)
            sent = server.stats()["traceparents"][-1]
            server.wait_for_switch(server.switch("b"))
        wait_until(lambda: len([s for s in spans if s.name == "switch"]) == 2, "all spans came")
        ours = {span.name: span for span in spans if span.trace_id.hex() == TRACE}
        assert ours.keys() == {"gateway.request", "gateway.queue", "gateway.engine"}
        request, engine = ours["gateway.request"], ours["gateway.engine"]
        assert request.parent_span_id.hex() == PARENT
        assert {ours[name].parent_span_id for name in ("gateway.queue", "gateway.engine")} == {
            request.span_id
        }
        # The engine's own spans, if it has any, are children of the span that waits for it.
        assert sent == f"00-{TRACE}-{engine.span_id.hex()}-01"
        assert attributes(request)["http.response.status_code"] == 200
        assert attributes(request)["gen_ai.request.model"] == "fake"
        assert attributes(engine)["gateway.events"] == 4
        assert "secret" not in str(spans)
        last = next(
            span for span in spans if span.name == "switch" and attributes(span)["switch.profile"] == "b"
        )
        assert [event.name for event in last.events] == ["starting", "gating", "applied"]
        assert attributes(last)["switch.state"] == "applied"


def test_without_an_endpoint_the_trace_context_passes_through(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("a")]) as server:
        assert server.sidecar.tracing is NO_TRACING
        for given, passed in ((TRACEPARENT, TRACEPARENT), ("00-x\tevil", ""), ("", "")):
            ask(server, **({"traceparent": given} if given else {}))
            assert server.stats()["traceparents"][-1] == passed


def test_a_receiver_that_is_away_costs_no_request(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    with run_sidecar(tmp_path, [fake_profile("a")], otlp_endpoint="http://127.0.0.1:9/v1/traces") as server:
        ask(server)


def test_without_the_extra_an_endpoint_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"specpilot\[otel\]"):
        make_tracing("http://127.0.0.1:9/v1/traces")
