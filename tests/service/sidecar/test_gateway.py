"""What passes through the gateway, byte for byte, and what happens when a side fails."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.live_server import wait_until
from tests.service.sidecar.harness import LiveSidecar, body_bytes, fake_profile, run_sidecar

TEXT: dict[str, Any] = {"model": "fake", "prompt": "x", "max_tokens": 6}
DONE = "data: [DONE]"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSidecar]:
    settings: dict[str, Any] = {"keep_alive_s": 0.1, "breaker_failures": 1000}
    with run_sidecar(tmp_path_factory.mktemp("state"), [fake_profile("plain")], **settings) as server:
        yield server


def ask(server: LiveSidecar, **fields: Any) -> httpx.Response:
    return server.client.post("/v1/completions", json=TEXT | fields)


def direct(server: LiveSidecar, **fields: Any) -> httpx.Response:
    upstream = server.sidecar.router.routed[0]
    return httpx.post(f"http://{upstream.host}:{upstream.port}/v1/completions", json=TEXT | fields)


def events_of(answer: httpx.Response) -> list[str]:
    return [event for event in answer.text.split("\n\n") if event and not event.startswith(":")]


@pytest.mark.parametrize("is_stream", [True, False])
def test_bytes_are_the_engines(server: LiveSidecar, is_stream: bool) -> None:
    passed, made = ask(server, stream=is_stream), direct(server, stream=is_stream)
    assert passed.content == made.content
    assert passed.headers["content-type"] == made.headers["content-type"]


def test_a_request_id_is_echoed_or_made(server: LiveSidecar) -> None:
    given = server.client.post("/v1/completions", json=TEXT, headers={"X-Request-Id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    unsafe = server.client.post("/v1/nothing", headers={"X-Request-Id": "a b"})
    assert unsafe.status_code == 404 and len(unsafe.headers["x-request-id"]) == 32


def test_models_are_the_engines(server: LiveSidecar) -> None:
    assert [card["id"] for card in server.client.get("/v1/models").json()["data"]] == ["fake"]
    assert server.client.get("/v1/models/fake").json()["id"] == "fake"
    assert server.client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_body"),
        (b"[]", 400, "invalid_body"),
        (b"[" * 100_000, 400, "invalid_body"),
        (b"{}", 400, "missing_parameter"),
        (b'{"model": 3}', 400, "invalid_value"),
        (b'{"model": "gpt-9"}', 404, "model_not_found"),
        (b'{"model": "\\ud800"}', 404, "model_not_found"),
        (b'{"model": "' + b"x" * 3_000_000 + b'"}', 413, "body_too_large"),
    ],
)
def test_a_body_the_gateway_refuses(server: LiveSidecar, content: bytes, status: int, code: str) -> None:
    answer = server.client.post("/v1/completions", content=content)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_body_of_two_lengths_is_refused_and_the_connection_closed(server: LiveSidecar) -> None:
    with server.connect() as client:
        client.sendall(body_bytes(server, {"Transfer-Encoding": "chunked"}))
        answer = b"".join(iter(lambda: client.recv(65536), b""))  # ends because the server closes
    assert answer.startswith(b"HTTP/1.1 400 ") and b"connection: close" in answer.lower()


def test_an_unknown_model_is_told_the_served_ones(server: LiveSidecar) -> None:
    assert "'fake'" in ask(server, model="gpt-9").json()["error"]["message"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_refusal_of_the_engine_passes_as_it_is(server: LiveSidecar, is_stream: bool) -> None:
    answer = ask(server, stream=is_stream, fake={"how": "status", "status": 422})
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "asked"


def test_a_waiting_stream_is_kept_alive(server: LiveSidecar) -> None:
    answer = ask(server, stream=True, fake={"head_delay_s": 0.5})
    assert answer.text.startswith(": keep-alive\n\n")
    assert [event for event in events_of(answer)] == [
        event for event in direct(server, stream=True).text.split("\n\n") if event
    ]


def test_a_refusal_after_keep_alive_is_an_error_frame(server: LiveSidecar) -> None:
    answer = ask(server, stream=True, fake={"head_delay_s": 0.5, "how": "status", "status": 400})
    assert answer.status_code == 200
    error, done = events_of(answer)
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "asked" and done == DONE


@pytest.mark.parametrize("how", ["reset", "no_done"])
def test_a_broken_stream_ends_with_an_error_frame(server: LiveSidecar, how: str) -> None:
    events = events_of(ask(server, stream=True, fake={"how": how}))
    parsed = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert events[-1] == DONE and parsed[-1]["error"]["code"] == "engine_failed"
    assert all("choices" in chunk for chunk in parsed[:-1]) and len(parsed) == 5


def test_an_error_of_the_engine_in_its_stream_is_the_only_one(server: LiveSidecar) -> None:
    events = events_of(ask(server, stream=True, fake={"how": "error"}))
    assert events[-1] == DONE and [event for event in events if '"error"' in event] == [events[-2]]
    assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "asked"


def test_a_broken_whole_answer_is_502(server: LiveSidecar) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream = server.sidecar.router.routed[0]
        port, upstream.port = upstream.port, listener.getsockname()[1]
        try:
            answers: list[httpx.Response] = []
            thread = threading.Thread(target=lambda: answers.append(ask(server)))
            thread.start()
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
            connection.close()
            thread.join()
        finally:
            upstream.port = port
    assert answers[0].status_code == 502 and answers[0].json()["error"]["code"] == "engine_failed"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_client_that_leaves_is_seen_by_the_engine(
    server: LiveSidecar, how: str, is_stream: bool, is_before: bool
) -> None:
    fake = {"head_delay_s": 3600} if is_before or not is_stream else {"delay_s": 0.05}
    connection = server.connect()
    connection.sendall(body_bytes(server, stream=is_stream, max_tokens=10_000, fake=fake))
    wait_until(lambda: server.stats()["open"] == 1, "the engine has it")
    if is_stream and not is_before:
        assert connection.recv(100)
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    wait_until(lambda: server.stats()["open"] == 0, "the engine has lost it")
    wait_until(lambda: server.num_in_flight() == 0, "its place is free")


def test_usage_is_counted_and_not_shown(server: LiveSidecar) -> None:
    key_id, headers = server.make_key("inference")
    answer = server.client.post("/v1/completions", json=TEXT | {"stream": True}, headers=headers)
    assert "usage" not in answer.text
    # The gateway of this module is open, so the request counts for nobody in particular.
    rows = server.sidecar.store.usage.of("open")
    assert rows and rows[0].completion_tokens > 0 and not server.sidecar.store.usage.of(key_id)


def test_metrics_count_what_passed(server: LiveSidecar) -> None:
    before = server.sidecar.metrics.registry.get_sample_value("specpilot_gateway_events_total") or 0
    ask(server, stream=True)
    after = server.sidecar.metrics.registry.get_sample_value("specpilot_gateway_events_total")
    assert after == before + 7  # six tokens and [DONE]; the usage comment does not reach a client


def test_the_queue_is_bounded_and_gives_places_in_order(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("plain")], max_in_flight=2, max_queued=3) as server:
        answers: list[httpx.Response] = []

        def work(index: int) -> None:
            body = TEXT | {"prompt": index, "fake": {"how": "gate"}}
            answers.append(httpx.post(server.url + "/v1/completions", json=body, timeout=60))

        threads = []
        for index in range(5):
            threads.append(threading.Thread(target=work, args=(index,)))
            threads[-1].start()
            wait_until(lambda expected=index + 1: server.num_in_flight() == expected, "it is in")  # type: ignore[misc]
        refused = ask(server)
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "overloaded"
        assert int(refused.headers["retry-after"]) >= 1
        upstream = server.sidecar.router.routed[0]
        httpx.get(f"http://{upstream.host}:{upstream.port}/fake/open")
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 5
        stats = server.stats()
        # Two may enter together when their places come free together.
        asked = stats["prompts"][1:]  # behind the sidecar's own probe
        assert set(asked[:2]) == {0, 1} and asked[2:] == [2, 3, 4] and stats["max_open"] == 2


def test_resets_before_the_first_byte_leak_no_place(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("plain")], max_in_flight=4) as server:
        for _ in range(20):
            connection = server.connect()
            connection.sendall(body_bytes(server, stream=True, fake={"head_delay_s": 3600}))
            wait_until(lambda: server.num_in_flight() >= 1, "it is in")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        wait_until(lambda: server.num_in_flight() == 0, "all are gone")
        wait_until(lambda: server.stats()["open"] == 0, "also in the engine")
        assert not server.sidecar.router.routed[0].flights and server.sidecar.router.num_waiting == 0
        assert [ask(server).status_code for _ in range(8)] == [200] * 8


def test_the_breaker_opens_on_failures_and_not_on_refusals(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"breaker_failures": 2, "breaker_cooldown_s": 0.3}
    with run_sidecar(tmp_path, [fake_profile("plain")], **settings) as server:
        for _ in range(5):
            assert ask(server, fake={"how": "status", "status": 400}).status_code == 400
        assert ask(server).status_code == 200
        for _ in range(2):
            assert ask(server, fake={"how": "status", "status": 500}).status_code == 500
        stopped = ask(server)
        assert stopped.status_code == 503 and stopped.json()["error"]["code"] == "breaker_open"
        assert stopped.headers["retry-after"]
        assert server.client.get("/readyz").status_code == 503
        wait_until(lambda: ask(server).status_code == 200, "one try closes it")
        assert server.client.get("/readyz").status_code == 200


def test_an_engine_that_hangs_is_given_up(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"engine_timeout_s": 0.5, "breaker_failures": 1, "breaker_cooldown_s": 3600}
    with run_sidecar(tmp_path, [fake_profile("plain")], **settings) as server:
        answer = ask(server, fake={"how": "hang"})
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "engine_failed"
        wait_until(lambda: server.stats()["open"] == 0, "the engine has lost it")
        assert ask(server).json()["error"]["code"] == "breaker_open"
