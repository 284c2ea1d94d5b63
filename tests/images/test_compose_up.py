"""The CPU stack as an operator starts it: image built, up, a chat, a switch of profiles under load, down."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.images.docker_engine import base_image, compose, docker_engine, docker_program
from tests.programs import require_program
from tests.service.live_server import wait_until
from tests.source_tree import REPO

NUM_STREAMS = 8
PATIENCE_S = 120.0
CHAT = {
    "model": "specpilot-bundled",
    "messages": [{"role": "user", "content": "Tom has 3 boxes with 12 pens each. How many pens?"}],
    "max_tokens": 48,
    "temperature": 0,
    "stream": True,
}


def free_ports(count: int) -> list[str]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def stream_until(stop: threading.Event, client: httpx.Client, ends: list[str], faults: list[str]) -> None:
    """Chats one after the other; every one must end with [DONE] and hold no error."""
    while not stop.is_set():
        try:
            with client.stream("POST", "/v1/chat/completions", json=CHAT) as reply:
                lines = [line for line in reply.iter_lines() if line.startswith("data: ")]
        except httpx.HTTPError as error:
            faults.append(repr(error))
            return
        if (
            reply.status_code != 200
            or not lines
            or lines[-1] != "data: [DONE]"
            or '"error"' in "".join(lines)
        ):
            faults.append(f"{reply.status_code}: {lines[-2:]}")
            return
        ends.append(lines[-1])


def switch_under_load(gateway: httpx.Client, admin: httpx.Client, profile: str) -> tuple[int, list[str]]:
    """Chats that ended while the profile was switched, and faults."""
    stop, ends, faults = threading.Event(), list[str](), list[str]()
    threads = [
        threading.Thread(target=stream_until, args=(stop, gateway, ends, faults)) for _ in range(NUM_STREAMS)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(ends) >= NUM_STREAMS or bool(faults), "chats before the switch")
        before = len(ends)
        begun = admin.post("/admin/v1/switches", json={"profile": profile, "reason": "test"})
        assert begun.status_code == 202, begun.text
        path = f"/admin/v1/switches/{begun.json()['id']}"
        wait_until(
            lambda: admin.get(path).json()["state"] in ("applied", "rolled_back", "failed"), "the switch ends"
        )
        assert admin.get(path).json()["state"] == "applied", admin.get(path).text
        during = len(ends)
        wait_until(lambda: len(ends) >= during + NUM_STREAMS or bool(faults), "chats after the switch")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return len(ends) - before, faults


@pytest.mark.skipif(
    os.environ.get("IMAGE_TESTS") != "1",
    reason="builds images and runs Docker, minutes and gigabytes: set IMAGE_TESTS=1",
)
@pytest.mark.timeout(3000)
def test_the_cpu_stack_comes_up_answers_switches_and_goes(tmp_path: Path) -> None:
    require_program("docker-compose")
    with docker_engine() as host:
        base = base_image(host, tmp_path)
        gateway_port, admin_port, console_port = free_ports(3)
        ports = {"GATEWAY_PORT": gateway_port, "ADMIN_PORT": admin_port, "CONSOLE_PORT": console_port}
        services = [] if importlib.util.find_spec("specpilot_console.__main__") else ["appliance"]
        try:
            compose(host, base, ports, "up", "--detach", "--build", "--wait", *services)
            key = compose(host, base, ports, "exec", "-T", "appliance", "cat", "/var/lib/specpilot/admin.key")
            url = f"http://127.0.0.1:{gateway_port}"
            smoke = subprocess.run(
                [sys.executable, str(REPO / "images" / "common" / "specpilot-smoke"), url],
                env={"GATEWAY_KEY": key.strip()},
                capture_output=True,
                text=True,
            )
            assert smoke.returncode == 0, smoke.stdout + smoke.stderr
            if not services:
                assert httpx.get(f"http://127.0.0.1:{console_port}/").status_code == 200
            head = {"Authorization": f"Bearer {key.strip()}"}
            limits = httpx.Limits(max_connections=2 * NUM_STREAMS)
            with (
                httpx.Client(base_url=url, headers=head, timeout=PATIENCE_S, limits=limits) as gateway,
                httpx.Client(
                    base_url=f"http://127.0.0.1:{admin_port}", headers=head, timeout=PATIENCE_S
                ) as admin,
            ):
                num_chats, faults = switch_under_load(gateway, admin, "cpu/bundled--eagle3--chain")
            assert faults == [] and num_chats >= NUM_STREAMS
            offline_words = [
                docker_program(),
                "--host",
                host,
                "run",
                "--rm",
                "--network",
                "none",
                "--read-only",
            ]
            offline_words += ["--cap-drop", "ALL", "--user", "54321:0", "specpilot:0.1.0-cpu"]
            listed = subprocess.run(
                [*offline_words, "list-profiles", "--json"], capture_output=True, text=True, check=True
            )
            states = {row["name"]: row["status"] for row in json.loads(listed.stdout)["profiles"]}
            assert states["cpu/bundled--dflash2--chain"] == "runnable"
            assert states["h100/qwen3.8-27b--dflash2--single"] == "wrong gpu"
            compose(host, base, ports, "stop")
            ended = compose(host, base, ports, "ps", "--all", "--format", "json").splitlines()
            codes = {row["Service"]: row["ExitCode"] for row in map(json.loads, ended)}
            assert codes.pop("appliance") == 0, "SIGTERM drains it"
            # uvicorn shuts the console down and then raises the signal again: 128 + 15.
            assert set(codes.values()) <= {0, 143}
        finally:
            compose(host, base, ports, "down", "--volumes", "--timeout", "60")
