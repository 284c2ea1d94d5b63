"""The controller's client on our own endpoint: the ids it counts are the engine's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specpilot.bench.compare.arms import StockChoice, server_arms
from specpilot.controller.clock import SystemClock
from specpilot.controller.measure import ask
from specpilot.controller.slots.engine import EngineEndpoint
from specpilot.controller.slots.http import HttpEndpoint, list_models
from specpilot.engines.mechanisms import Mechanisms
from specpilot.errors import ConfigError, EngineError
from specpilot.requests.sets import Prompt
from tests.service.live_server import LiveServer, run_server
from tests.service.tiny_engine import TinyEngine

PROMPT = Prompt("a", "b", 1, tuple(b"Tom has"))


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with run_server(TinyEngine()) as made:
        yield made


def test_ids_over_http_are_the_engines(server: LiveServer) -> None:
    [model, *_] = list_models(server.url)
    clock = SystemClock()
    over_http = ask(HttpEndpoint(server.url, model, {"speculation": {"drafter": "none"}}), PROMPT, 9, clock)
    inside = ask(EngineEndpoint(server.runtime.engine, None), PROMPT, 9, clock)
    assert over_http.output_ids == inside.output_ids and over_http.finish_reason == inside.finish_reason
    assert over_http.num_steps == inside.num_steps
    assert 0.0 < over_http.first_s <= over_http.elapsed_s


def test_arms_of_one_server(server: LiveServer) -> None:
    drafter = server.runtime.engine.describe().drafters[0]
    arms = server_arms(server.url, StockChoice(drafter), (drafter, Mechanisms()), 4)
    answers = {arm.name: ask(arm.endpoint, PROMPT, 9, SystemClock()) for arm in arms if arm.name != "DDTree"}
    assert len({one.output_ids for one in answers.values()}) == 1


def test_whole_answers_carry_ids_only_when_asked(server: LiveServer) -> None:
    body = {
        "model": list_models(server.url)[0],
        "prompt": list(PROMPT.prompt_ids),
        "max_tokens": 5,
        "temperature": 0,
    }
    plain = server.client.post("/v1/completions", json=body).json()["choices"][0]
    asked = server.client.post("/v1/completions", json=body | {"return_token_ids": True}).json()["choices"][0]
    assert "token_ids" not in plain
    assert asked.pop("prompt_token_ids") == list(PROMPT.prompt_ids)
    assert asked.pop("token_ids") and asked == plain


class Wrong(BaseHTTPRequestHandler):
    events: tuple[str, ...] = ()

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(f"data: {event}\n\n" for event in self.events).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (('{"choices": [{"text": "a", "finish_reason": null}]}',), "no token_ids"),
        (('{"choices": [{"text": "a", "token_ids": [1], "finish_reason": null}]}',), "ended before"),
        (('{"error": {"message": "broken"}}',), "broken"),
        (("no json",), "cannot be read"),
        (('{"choices": [{"text": "a", "token_ids": [1], "finish_reason": null}]}', "[DONE]"), "was cut"),
    ],
)
def test_servers_that_answer_wrongly_are_errors(events: tuple[str, ...], words: str) -> None:
    handler = type("Handler", (Wrong,), {"events": events})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = HttpEndpoint(f"http://127.0.0.1:{server.server_address[1]}", "m")
        with pytest.raises(EngineError, match=words):
            ask(endpoint, PROMPT, 9, SystemClock())
        server.shutdown()


def test_urls() -> None:
    for url in ("https://127.0.0.1", "127.0.0.1:80", "http:/"):
        with pytest.raises(ConfigError, match="such as"):
            HttpEndpoint(url, "m")
