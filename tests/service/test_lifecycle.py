"""Ready, draining, gone: in process with a slow engine, and as a real process on the bundled model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpilot.engines.base import CancelToken, Chunk, Engine, GenerateRequest
from tests.service.live_server import LiveServer, run_server, wait_until
from tests.service.sse import parse_events
from tests.service.test_failures import GatedEngine
from tests.service.tiny_engine import TinyEngine

TEXT = {"model": "tiny-ngram", "prompt": "Tom", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
ROOT = Path(__file__).parents[2]


class BrokenEngine(TinyEngine):
    """Looks healthy and cannot decode."""

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        raise RuntimeError("broken")


def begin_drain(server: LiveServer) -> None:
    loop = server.server._loop
    assert loop is not None
    loop.call_soon_threadsafe(server.server.begin_drain, "test")


def ask_in_thread(server: LiveServer, answers: list[httpx.Response], **fields: Any) -> threading.Thread:
    def ask() -> None:
        answers.append(httpx.post(server.url + "/v1/completions", json=TEXT | fields, timeout=60))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.parametrize("is_stream", [True, False])
def test_drain_finishes_running_requests_and_refuses_new_ones(is_stream: bool) -> None:
    engine = GatedEngine()
    with run_server(engine) as server:
        answers: list[httpx.Response] = []
        thread = ask_in_thread(server, answers, stream=is_stream, n=2)
        wait_until(lambda: server.runtime.workers.num_open == 1, "it runs")
        begin_drain(server)
        wait_until(lambda: server.client.get("/readyz").status_code == 503, "draining shows")
        assert server.client.get("/readyz").json()["detail"] == "draining"
        assert server.client.get("/livez").status_code == 200
        refused = server.client.post("/v1/completions", json=TEXT)
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "shutting_down"
        engine.gate.set()
        thread.join(60)
        assert answers[0].status_code == 200
        if is_stream:
            events, is_done = parse_events(answers[0].content)
            reasons = [c["finish_reason"] for event in events for c in event["choices"] if c["finish_reason"]]
            assert is_done and reasons == ["length", "length"]
        else:
            assert answers[0].json()["usage"]["completion_tokens"] == 120
        wait_until(lambda: server.server.should_exit, "the server ends")
        assert server.server.has_drained


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_outlasts_the_drain_is_cancelled_and_told(is_stream: bool) -> None:
    with run_server(TinyEngine(step_delay_s=0.02), drain_timeout_s=0.1) as server:
        answers: list[httpx.Response] = []
        thread = ask_in_thread(server, answers, stream=is_stream, max_tokens=2000)
        wait_until(lambda: server.runtime.engine.health().num_running == 1, "it runs")
        begin_drain(server)
        thread.join(60)
        if is_stream:
            events, is_done = parse_events(answers[0].content)
            assert not is_done and events[-1]["error"]["code"] == "shutting_down"
        else:
            assert answers[0].status_code == 503
        wait_until(lambda: server.server.should_exit, "the server ends")
        assert not server.server.has_drained


def test_ready_only_after_a_decoded_token() -> None:
    from fastapi.testclient import TestClient

    from specpilot_service.app import create_app
    from specpilot_service.settings import Settings

    app = create_app(Settings(), BrokenEngine())
    with TestClient(app) as client:
        wait_until(lambda: "failed" in client.get("/readyz").json()["detail"], "the warm-up failed")
        assert client.get("/readyz").status_code == 503
        assert client.get("/livez").status_code == 200


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service_process(
    *arguments: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    port = free_port()
    command = [sys.executable, "-m", "specpilot_service", "--port", str(port), *arguments]
    process = subprocess.Popen(command, env=os.environ | variables, cwd=ROOT, stderr=subprocess.PIPE)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

        def is_ready() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            try:
                return client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        try:
            wait_until(is_ready, "the service is ready")
            yield process, client
        finally:
            process.kill()
            process.wait()


def test_sigterm_drains_and_exits_zero(bundled_engine: Engine, model: str) -> None:
    with service_process("--num-threads", "1") as (process, client):
        request = {"model": model, "prompt": "Tom", "max_tokens": 200, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=request) as response:
            lines = response.iter_lines()
            first = next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert first.startswith("data: {") and rest[-1] == "data: [DONE]"
        assert process.wait(60) == 0


def run_service(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "specpilot_service", *arguments]
    return subprocess.run(
        command, env=os.environ | variables, cwd=ROOT, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["--prot", "1"], {}, ["--prot"]),
        (["--port", "x"], {}, ["port", "'x'"]),
        (["--mode", "fast"], {}, ["mode", "'fast'"]),
        ([], {"SPECPILOT_PROT": "1"}, ["SPECPILOT_PROT", "SPECPILOT_PORT"]),
        ([], {"SPECPILOT_MAX_WAITING": "-1"}, ["max_waiting", "'-1'"]),
        (["--max-running", "0"], {}, ["max_running", "'0'"]),
        (["--max-kv-tokens", "0"], {}, ["max_kv_tokens", "'0'"]),
    ],
)
def test_wrong_settings_are_one_clear_line_and_exit_code_2(
    arguments: list[str], variables: dict[str, str], words: list[str]
) -> None:
    done = run_service(*arguments, **variables)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and all(word in done.stderr for word in words)
    assert done.stdout == ""


def test_model_that_cannot_be_loaded_is_refused_before_serving(tmp_path: Path) -> None:
    done = run_service("--model", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "nowhere" in done.stderr
