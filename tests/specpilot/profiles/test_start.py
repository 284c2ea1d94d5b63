"""The command of a CPU profile starts an engine that answers, and SIGTERM ends it cleanly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx

from specpilot.profiles import resolve

PATIENCE_S = 300.0
"""Only so that an engine that never comes up cannot hold the run for ever."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(0.05)
    raise AssertionError(f"not ready: {log.read_text(encoding='utf-8')}")


def test_the_resolved_command_serves_with_the_mechanisms_of_the_profile(tmp_path: Path) -> None:
    resolved = resolve("cpu/bundled--dflash2--tree", "cpu", port=free_port())
    url = f"http://127.0.0.1:{resolved.command[resolved.command.index('--port') + 1]}"
    log = tmp_path / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            resolved.command, stdout=output, stderr=output, env={**os.environ, **resolved.environment}
        )
        try:
            wait_until_ready(url, process, log)
            reply = httpx.post(
                f"{url}/v1/completions",
                json={
                    "model": "specpilot-bundled",
                    "prompt": "12 + 30 = ",
                    "max_tokens": 24,
                    "temperature": 0,
                },
                timeout=PATIENCE_S,
            )
            assert reply.status_code == 200, reply.text
            assert reply.json()["usage"]["completion_tokens"] > 0
            assert 'drafter="dflash2"' in httpx.get(f"{url}/metrics").text
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE_S) == 0, log.read_text(encoding="utf-8")
        finally:
            process.kill()
            process.wait()
