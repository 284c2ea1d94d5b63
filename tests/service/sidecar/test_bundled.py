"""The command itself, on the bundled model: up, a chat, a switch, a killed sidecar, the same answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import specpilot
from specpilot_service.sidecar.engines.process import free_port
from tests.service.live_server import wait_until
from tests.source_tree import REPO

QUESTION = "Tom has 3 boxes with 12 pens each. How many pens are there?"


@contextlib.contextmanager
def up(state: Path, port: int, admin_port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    script = "import sys; from specpilot.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "up", "--state", str(state), "--port", str(port)]
    command += ["--admin-port", str(admin_port), *options]
    process = subprocess.Popen(command, cwd=REPO, stderr=subprocess.PIPE)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
            return False

        for _ in range(3):  # a cold start may compile kernels for longer than one wait
            with contextlib.suppress(AssertionError):
                wait_until(is_ready, "the gateway is ready")
                break
        assert is_ready()
        yield process
    finally:
        process.kill()
        process.wait()


def ask(port: int, key: str) -> tuple[str, Any]:
    """The answer's text, and the engine's report in the last frame."""
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key)
    messages: Any = [{"role": "user", "content": QUESTION}]
    text, report = "", None
    for part in client.chat.completions.create(
        model="specpilot-bundled", messages=messages, temperature=0, max_tokens=24, stream=True
    ):
        assert part.usage is None
        if part.choices:
            text += part.choices[0].delta.content or ""
        report = (part.model_extra or {}).get("specpilot") or report
    return text, report


def test_the_main_path(tmp_path: Path) -> None:
    if not (Path(specpilot.__file__).parent / "models" / "bundled" / "target").exists():
        pytest.skip("the bundled model is not in this checkout")
    port, admin_port = free_port(), free_port()
    # Without gates, whose audits have a test of their own and take their time.
    options = ("--profile", "cpu/bundled--none--plain", "--gates", "[]")
    with up(tmp_path, port, admin_port, *options) as process:
        key = (tmp_path / "admin.key").read_text().strip()
        admin = httpx.Client(
            base_url=f"http://127.0.0.1:{admin_port}/admin/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=60,
        )
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 401
        plain, report = ask(port, key)
        assert report["drafter"] == "none"
        listed = admin.get("/profiles").json()
        runnable = [p["name"] for p in listed["profiles"] if p["status"] == "runnable"]
        assert "cpu/bundled--dflash2--tree" in runnable
        body = {"profile": "bundled--dflash2--chain", "reason": "faster"}
        switch = admin.post("/switches", json=body).json()

        def is_applied() -> bool:
            state: str = admin.get(f"/switches/{switch['id']}").json()["state"]
            assert state not in ("rolled_back", "failed")
            return state == "applied"

        wait_until(is_applied, "the switch is applied")
        drafted, report = ask(port, key)
        assert report["drafter"] == "dflash2" and drafted == plain
        (pid,) = [engine["pid"] for engine in admin.get("/engine").json()["instances"]]
        for name, status in (("bundled--dflash2--batching", 409), ("bundled--dflash2--tree", 202)):
            answer = admin.post("/switches", json={"profile": name, "mode": "in-engine", "reason": "x"})
            assert answer.status_code == status, answer.text
        switch = answer.json()
        wait_until(is_applied, "the engine has changed")
        drafted, report = ask(port, key)
        assert drafted == plain and any("best_first" in name for name in report["mechanisms"]), report
        assert [engine["pid"] for engine in admin.get("/engine").json()["instances"]] == [pid]
        refused = admin.post(
            "/switches", json={"profile": "h100/qwen3.8-27b--dflash2--single", "reason": "x"}
        )
        assert refused.status_code in (404, 409)

        def row() -> Any:
            rows = admin.get(f"/keys/{admin.get('/whoami').json()['key_id']}/usage").json()["rows"]
            return rows[0] if rows else None

        usage = row()
        assert usage["num_requests"] == 3 and usage["completion_tokens"] == 72
        assert usage["prompt_tokens"] > 20 and usage["estimated_tokens"] == 0
        process.send_signal(signal.SIGKILL)
        process.wait()
    with up(tmp_path, port, admin_port) as process:
        again, report = ask(port, key)
        assert report["drafter"] == "dflash2" and again == plain
        assert admin.get("/revisions").json()["current"] == 3
        assert admin.get("/audit-log/verify").json()["is_intact"]
        metrics = httpx.get(f"http://127.0.0.1:{admin_port}/metrics", headers=admin.headers).text
        assert "specpilot_gateway_requests_total" in metrics and "specpilot_sidecar_revision 3.0" in metrics
        wait_until(
            lambda: (
                "specpilot_accept_length_tokens_count"
                in admin.get(f"http://127.0.0.1:{admin_port}/metrics").text
            ),
            "the engine's own metrics are there",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    admin.close()
    assert not [p for p in Path("/proc").iterdir() if p.name.isdigit() and is_engine_of(p, tmp_path)]


def is_engine_of(process: Path, state: Path) -> bool:
    from specpilot_service.sidecar.engines.process import _mark_of

    with contextlib.suppress(OSError):
        return _mark_of(state).encode() in (process / "environ").read_bytes()
    return False


def test_wrong_settings_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "specpilot_service.sidecar", "--state", str(tmp_path), *options]
        return subprocess.run(
            command, cwd=REPO, env=os.environ | variables, capture_output=True, text=True, timeout=120
        )

    cases: list[tuple[list[str], dict[str, str], str]] = [
        (["--prot", "1"], {}, "--prot"),
        (["--open", "--host", "0.0.0.0"], {}, "loopback"),
        (["--engine-url", "https://127.0.0.1:1"], {}, "engine_url"),
        ([], {"SPECPILOT_ADMIN_PROT": "1"}, "SPECPILOT_ADMIN_PORT"),
        (["--state", "/proc/nowhere"], {}, "/proc/nowhere"),
    ]
    for options, variables, word in cases:
        done = run(*options, **variables)
        assert done.returncode == 2 and word in done.stderr and len(done.stderr.splitlines()) == 1, (
            done.stderr
        )
