"""An engine that fails or is full: told clearly, without internals, and only to the request it concerns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from specpilot.engines.base import CancelToken, Chunk, GenerateRequest
from tests.service.live_server import LiveServer, run_server, wait_until
from tests.service.sse import parse_events
from tests.service.tiny_engine import TinyEngine

TEXT = {"model": "tiny-ngram", "prompt": "Tom", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
CHAT = {
    "model": "tiny-ngram",
    "messages": [{"role": "user", "content": "Tom"}],
    "max_tokens": 40,
    "temperature": 0,
}


class GatedEngine(TinyEngine):
    """Holds every generation at its first step until ``gate`` is set."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.gate = threading.Event()

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        is_warm_up = request.request_id == "warm-up"
        answer = super().generate(request, cancel)

        class Held(Iterator[Chunk]):
            def __next__(held) -> Chunk:
                if not is_warm_up:
                    assert self.gate.wait(60)
                return next(answer)

            def close(held) -> None:
                answer.close()  # type: ignore[attr-defined]

        return Held()


class EndlessStart(TinyEngine):
    """Ends an answer without saying why."""

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        if request.request_id == "warm-up":
            return super().generate(request, cancel)
        return (chunk for chunk in [Chunk((65,), "A")])


@pytest.fixture
def failing() -> Iterator[LiveServer]:
    engine = TinyEngine()
    with run_server(engine) as server:
        engine.fail_after_steps = 3
        yield server


def test_failure_before_the_answer_is_a_500_without_internals(failing: LiveServer) -> None:
    response = failing.client.post("/v1/completions", json=TEXT, headers={"X-Request-Id": "job-9"})
    assert response.status_code == 500
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert "job-9" in error["message"] and "secret" not in response.text and "/etc" not in response.text
    assert response.headers["x-request-id"] == "job-9"
    wait_until(failing.is_idle, "the place is free again")


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", TEXT), ("/v1/chat/completions", CHAT)])
def test_failure_mid_stream_is_an_error_frame_and_no_done(
    failing: LiveServer, path: str, body: dict[str, Any]
) -> None:
    response = failing.client.post(path, json=body | {"stream": True})
    assert response.status_code == 200
    events, is_done = parse_events(response.content)
    assert not is_done
    assert all("choices" in event for event in events[:-1]) and len(events) >= 3
    assert all(c["finish_reason"] is None for event in events[:-1] for c in event["choices"])
    error = events[-1]["error"]
    assert error["type"] == "server_error" and "secret" not in response.text
    wait_until(failing.is_idle, "the place is free again")


def test_after_a_failure_the_server_serves_on(failing: LiveServer) -> None:
    failing.client.post("/v1/completions", json=TEXT | {"stream": True})
    engine = failing.runtime.engine
    assert isinstance(engine, TinyEngine)
    engine.fail_after_steps = None
    assert failing.client.post("/v1/completions", json=TEXT).json()["usage"]["completion_tokens"] == 40


def test_answer_without_an_end_is_not_a_success() -> None:
    with run_server(EndlessStart()) as server:
        assert server.client.post("/v1/completions", json=TEXT).status_code == 500
        events, is_done = parse_events(
            server.client.post("/v1/completions", json=TEXT | {"stream": True}).content
        )
        assert not is_done and "error" in events[-1]


def test_full_queue_is_429_with_retry_after_and_the_others_are_answered() -> None:
    engine = GatedEngine(max_waiting=2)
    with run_server(engine, max_running=1, max_waiting=2) as server:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(server.url + "/v1/completions", json=TEXT, timeout=60))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.runtime.workers.num_open == 3, "one runs, two wait")
        refused = server.client.post("/v1/completions", json=TEXT)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "overloaded"
        refused = server.client.post("/v1/completions", json=TEXT | {"stream": True})
        assert refused.status_code == 429
        engine.gate.set()
        for thread in threads:
            thread.join(60)
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert server.client.post("/v1/completions", json=TEXT).status_code == 200


def test_overload_of_the_engine_itself_is_429_too() -> None:
    """Somebody else may use the engine beside the service."""
    engine = GatedEngine(max_waiting=0)
    with run_server(engine, max_running=1, max_waiting=5) as server:
        foreign = engine.generate(GenerateRequest([84]))
        engine.gate.set()
        next(foreign)
        refused = server.client.post("/v1/completions", json=TEXT)
        assert refused.status_code == 429 and refused.headers["retry-after"] == "2"
        foreign.close()  # type: ignore[attr-defined]
        assert server.client.post("/v1/completions", json=TEXT).status_code == 200


def test_requests_are_served_in_order_of_arrival() -> None:
    engine = TinyEngine(step_delay_s=0.005)
    with run_server(engine) as server:
        ended: list[int] = []
        threads = []
        for index in range(5):

            def ask(index: int = index) -> None:
                response = httpx.post(server.url + "/v1/completions", json=TEXT | {"n": 1}, timeout=60)
                assert response.status_code == 200
                ended.append(index)

            threads.append(threading.Thread(target=ask))
            threads[-1].start()

            def is_in(index: int = index) -> bool:
                health = engine.health()
                return health.num_running + health.num_waiting + len(ended) == index + 1

            wait_until(is_in, "it is in the engine's queue")
        for thread in threads:
            thread.join(60)
        assert ended == sorted(ended) and len(ended) == 5
