"""Sidecars and engines as processes of their own, and what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from specpilot_service.sidecar.engines.process import free_port
from tests.service.sidecar.harness import FAKE_ENGINE
from tests.source_tree import REPO

__all__ = ["SidecarProcess", "cpu_s", "run_fake_engine", "run_litellm", "run_sidecar_process"]

_PATIENCE_S = 60.0


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = _PATIENCE_S
    while end > 0:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url).status_code == 200:
                return
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        end -= 0.05
    raise RuntimeError(f"{url} does not answer")


@contextlib.contextmanager
def _running(command: list[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        cwd=REPO,
        env=os.environ | variables,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def run_fake_engine() -> Iterator[int]:
    """A fake engine; its port."""
    port = free_port()
    with _running([sys.executable, str(FAKE_ENGINE), "--port", str(port), "--lifetime-s", "300"]) as process:
        _wait(f"http://127.0.0.1:{port}/v1/models", process)
        yield port


@contextlib.contextmanager
def run_litellm(program: str, folder: Path, engine_port: int) -> Iterator[tuple[int, int]]:
    """LiteLLM's proxy with one worker in front of a fake engine; its port and process id."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "litellm.json"
    parameters = {
        "model": "text-completion-openai/fake",
        "api_base": f"http://127.0.0.1:{engine_port}/v1",
        "api_key": "none",
    }
    models = [{"model_name": "fake", "litellm_params": parameters}]
    config.write_text(json.dumps({"model_list": models, "litellm_settings": {"telemetry": False}}))
    command = [
        program,
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]
    with _running(
        command, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR", PYTHONPATH=""
    ) as process:
        _wait(f"http://127.0.0.1:{port}/health/liveliness", process)
        yield port, process.pid


class SidecarProcess:
    """A sidecar of its own process with the profiles ``a`` and ``b`` on fake engines."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path, port: int, admin_port: int) -> None:
        self.process, self.state, self.address = process, state, ("127.0.0.1", port)
        key = (state / "admin.key").read_text().strip()
        self.admin = httpx.Client(
            base_url=f"http://127.0.0.1:{admin_port}/admin/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_PATIENCE_S,
        )

    def switch(self, profile: str, mode: str) -> str:
        body = {"profile": profile, "mode": mode, "reason": "soak"}
        answer = self.admin.post("/switches", json=body)
        answer.raise_for_status()
        return str(answer.json()["id"])

    async def wait_for(self, switch_id: str, *states: str) -> str:
        while True:
            view = await asyncio.to_thread(lambda: self.admin.get(f"/switches/{switch_id}").json())
            if view["state"] in states:
                return str(view["state"])
            await asyncio.sleep(0.01)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def run_sidecar_process(
    state: Path, *options: str, engine_port: int | None = None
) -> Iterator[SidecarProcess]:
    """With ``engine_port`` the real command in front of that engine, else one whose profiles are fake engines."""
    port, admin_port = free_port(), free_port()
    module = "tests.soak.fake_sidecar" if engine_port is None else "specpilot_service.sidecar"
    command = [sys.executable, "-m", module, "--state", str(state), "--open"]
    command += ["--port", str(port), "--admin-port", str(admin_port), "--log-level", "warning", *options]
    if engine_port is not None:
        command += ["--engine-url", f"http://127.0.0.1:{engine_port}"]
    with _running(command) as process:
        _wait(f"http://127.0.0.1:{admin_port}/startupz", process)  # the first switch is over
        _wait(f"http://127.0.0.1:{port}/readyz", process)
        yield SidecarProcess(process, state, port, admin_port)
