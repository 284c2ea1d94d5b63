"""A client that leaves cancels its generation at once, whenever it leaves, and costs nobody else anything."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import pytest

from specpilot.engines.base import Engine
from tests.service.live_server import LiveServer, run_server, wait_until
from tests.service.tiny_engine import TinyEngine

ENDLESS = {"prompt": "Tom", "temperature": 0, "ignore_eos": True}


def request_bytes(server: LiveServer, **fields: Any) -> bytes:
    model = server.runtime.description.model_id
    content = json.dumps({"model": model, **ENDLESS, **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(content)}\r\n\r\n".encode() + content


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    return received


def hang_up(connection: socket.socket, how: str) -> None:
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def check_serving(server: LiveServer) -> None:
    model = server.runtime.description.model_id
    answer = server.client.post("/v1/completions", json={"model": model, "prompt": "Tom", "max_tokens": 4})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 4


def num_cancelled(server: LiveServer) -> float:
    value = server.runtime.metrics.registry.get_sample_value("specpilot_requests_cancelled_total")
    assert value is not None
    return value


@pytest.mark.parametrize("how", ["close", "reset"])
def test_leaving_mid_stream(how: str) -> None:
    with run_server(TinyEngine(step_delay_s=0.02)) as server:
        connection = server.connect()
        connection.sendall(request_bytes(server, stream=True, max_tokens=1500))
        assert b"200 OK" in read_until(connection, b'"text":')
        assert server.runtime.engine.health().num_running == 1
        hang_up(connection, how)
        wait_until(server.is_idle, "the generation is cancelled")
        assert num_cancelled(server) == 1
        check_serving(server)


@pytest.mark.parametrize("is_stream", [True, False])
def test_leaving_before_the_first_byte(is_stream: bool) -> None:
    with run_server(TinyEngine(step_delay_s=0.02)) as server:
        # A stream has its first byte once it is admitted, so this one is kept in the queue by another.
        busy = server.connect()
        busy.sendall(request_bytes(server, stream=True, max_tokens=1500))
        read_until(busy, b'"text":')
        waiting = server.connect()
        waiting.sendall(request_bytes(server, stream=is_stream, max_tokens=1500))
        wait_until(lambda: server.runtime.engine.health().num_waiting == 1, "the second request waits")
        hang_up(waiting, "close")
        wait_until(lambda: server.runtime.engine.health().num_waiting == 0, "it is taken out of the queue")
        assert server.runtime.engine.health().num_running == 1
        read_until(busy, b'"text":')
        hang_up(busy, "close")
        wait_until(server.is_idle, "both are gone")
        check_serving(server)


def test_leaving_while_the_whole_answer_is_made() -> None:
    with run_server(TinyEngine(step_delay_s=0.02)) as server:
        connection = server.connect()
        connection.sendall(request_bytes(server, max_tokens=1500))
        wait_until(lambda: server.runtime.engine.health().num_running == 1, "it runs")
        hang_up(connection, "close")
        wait_until(server.is_idle, "the generation is cancelled")
        assert num_cancelled(server) == 1
        check_serving(server)


def test_leaving_between_choices_and_prompts() -> None:
    """The choices that have not begun are dropped too."""
    with run_server(TinyEngine(step_delay_s=0.005)) as server:
        connection = server.connect()
        connection.sendall(request_bytes(server, stream=True, max_tokens=20, n=8, prompt=["Tom"] * 16))
        read_until(connection, b'"index":1')
        hang_up(connection, "close")
        wait_until(server.is_idle, "all choices are cancelled")
        check_serving(server)


def test_half_a_body_and_gone() -> None:
    with run_server(TinyEngine()) as server:
        connection = server.connect()
        connection.sendall(request_bytes(server)[:-10])
        hang_up(connection, "close")
        check_serving(server)
        wait_until(server.is_idle, "nothing was started")


@pytest.mark.parametrize("is_stream", [True, False])
def test_closing_only_the_sending_side_is_leaving(is_stream: bool) -> None:
    """On the wire it cannot be told from closing both, so the client finds its connection closed."""
    with run_server(TinyEngine(step_delay_s=0.02)) as server:
        connection = server.connect()
        connection.sendall(request_bytes(server, stream=is_stream, max_tokens=1500))
        wait_until(lambda: server.runtime.engine.health().num_running == 1, "it runs")
        connection.shutdown(socket.SHUT_WR)
        wait_until(server.is_idle, "the generation is cancelled")
        while connection.recv(65536):  # what was sent before; then the end, not a reset or a hang
            pass
        connection.close()
        check_serving(server)


def test_client_that_stops_reading_is_cut_off() -> None:
    with run_server(TinyEngine(max_waiting=4), stall_timeout_s=0.2) as server:
        connection = server.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Far more bytes than socket buffers hold, and not one of them is read.
        connection.sendall(
            request_bytes(server, stream=True, max_tokens=1500, logprobs=20, n=8, prompt=["Tom"] * 16)
        )
        wait_until(lambda: num_cancelled(server) == 1, "the stalled client is given up")
        wait_until(server.is_idle, "and its generation cancelled")
        check_serving(server)
        connection.close()


def test_leaving_mid_stream_on_the_bundled_model(bundled_engine: Engine) -> None:
    with run_server(bundled_engine) as server:
        connection = server.connect()
        connection.sendall(request_bytes(server, stream=True, max_tokens=6000))
        read_until(connection, b'"text":')
        hang_up(connection, "close")
        wait_until(server.is_idle, "the generation is cancelled")
        check_serving(server)
