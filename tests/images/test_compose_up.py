"""The CPU stack as an operator starts it: up, a chat, a switch of profiles under load, the console, stop, down."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.images.conftest import Compose
from tests.service.live_server import wait_until
from tests.service.sidecar.harness import END_STATES
from tests.source_tree import REPO

NUM_STREAMS = 8
PATIENCE_S = 120.0
AUDIT_PATIENCE_S = 600.0
CHAT = {
    "model": "specpilot-bundled",
    "messages": [{"role": "user", "content": "Tom has 3 boxes with 12 pens each. How many pens?"}],
    "max_tokens": 48,
    "temperature": 0,
    "stream": True,
}
PORTS = ("GATEWAY_PORT", "ADMIN_PORT", "CONSOLE_PORT")

pytestmark = pytest.mark.timeout(3000)


@dataclass(frozen=True)
class Stack:
    """What ``docker-compose up`` gives an operator."""

    compose: Compose
    ports: dict[str, str]
    key: str

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def client(self, name: str) -> httpx.Client:
        head = {"Authorization": f"Bearer {self.key}"}
        limits = httpx.Limits(max_connections=2 * NUM_STREAMS)
        return httpx.Client(base_url=self.url(name), headers=head, timeout=PATIENCE_S, limits=limits)


def free_ports(count: int) -> list[str]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@pytest.fixture(scope="module")
def stack(compose: Compose) -> Iterator[Stack]:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    try:
        compose("up", "--detach", "--wait", **ports)
        key = compose("exec", "-T", "appliance", "cat", "/var/lib/specpilot/admin.key").strip()
        started = Stack(compose, ports, key)
        with started.client("ADMIN_PORT") as admin:
            (first,) = admin.get("/admin/v1/switches").json()["switches"]
            assert wait_for_end(admin, first["id"])["state"] == "applied"
        yield started
    finally:
        compose("down", "--volumes", "--timeout", "60")


def wait_for_end(admin: httpx.Client, switch_id: str) -> dict[str, Any]:
    """The switch as it is once nothing of it runs any more; its audit waits for requests that are served."""
    path = f"/admin/v1/switches/{switch_id}"
    wait_until(lambda: admin.get(path).json()["state"] in END_STATES, "the switch ends", AUDIT_PATIENCE_S)
    return admin.get(path).json()


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
        ended = wait_for_end(admin, begun.json()["id"])
        assert ended["state"] == "applied", ended
        during = len(ends)
        wait_until(lambda: len(ends) >= during + NUM_STREAMS or bool(faults), "chats after the switch")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return len(ends) - before, faults


def test_the_endpoint_refuses_without_a_key_and_serves_with_one(stack: Stack) -> None:
    smoke = subprocess.run(
        [sys.executable, str(REPO / "images/common/specpilot-smoke"), stack.url("GATEWAY_PORT")],
        env={"GATEWAY_KEY": stack.key},
        capture_output=True,
        text=True,
    )
    assert smoke.returncode == 0, smoke.stdout + smoke.stderr
    assert smoke.stdout.count("ok ") == 6


def test_the_admin_api_answers_its_key_alone(stack: Stack) -> None:
    with stack.client("ADMIN_PORT") as admin:
        (revision,) = admin.get("/admin/v1/revisions").json()["revisions"]
    assert revision["profile_name"] == "cpu/bundled--dflash2--chain"
    assert httpx.get(f"{stack.url('ADMIN_PORT')}/admin/v1/revisions").status_code == 401


def test_the_console_answers_and_reaches_the_admin_api(stack: Stack) -> None:
    assert httpx.get(stack.url("CONSOLE_PORT")).status_code == 200
    reach = "import urllib.request as u; print(u.urlopen('http://appliance:8001/livez').status)"
    assert stack.compose("exec", "-T", "console", "python", "-c", reach).strip() == "200"


def test_a_switch_under_load_breaks_no_chat(stack: Stack) -> None:
    with stack.client("GATEWAY_PORT") as gateway, stack.client("ADMIN_PORT") as admin:
        num_chats, faults = switch_under_load(gateway, admin, "cpu/bundled--eagle3--chain")
    assert faults == [] and num_chats >= NUM_STREAMS


def test_containers_cannot_write_outside_their_volumes(stack: Stack) -> None:
    for service in ("appliance", "console"):
        container = stack.compose("ps", "--quiet", service).strip()
        assert stack.compose.docker.inspect(container)["HostConfig"]["ReadonlyRootfs"] is True
        refused = stack.compose.docker.fails("exec", container, "touch", "/opt/specpilot/x", "/etc/x")
        assert refused.stderr.count("Read-only file system") == 2


def test_it_stops_cleanly_and_leaves_nothing(stack: Stack) -> None:
    """The last of this module."""
    stack.compose("stop")
    rows = [json.loads(line) for line in stack.compose("ps", "--all", "--format", "json").splitlines()]
    codes = {row["Service"]: row["ExitCode"] for row in rows}
    # uvicorn shuts the console down and then raises the signal again: 128 + 15.
    assert codes == {"appliance": 0, "console": codes["console"]}, "SIGTERM drains the appliance"
    assert codes["console"] in (0, 143)
    stack.compose("down", "--volumes", "--timeout", "60")
    mine = ["--quiet", "--filter", "label=com.docker.compose.project=specpilot-test"]
    for words in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
        assert stack.compose.docker(*words, *mine).strip() == "", words
