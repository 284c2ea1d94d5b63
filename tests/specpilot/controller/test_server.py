"""The socket: who is listened to, and what is said to a caller who is wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specpilot.controller.client import call
from specpilot.controller.server import Server
from specpilot.controller.slots.base import System
from specpilot.errors import EngineError, RequestError
from tests.specpilot.controller.box import Box

PYTHON = Path("/usr/bin/python3")
ASK = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(json.dumps({"version": 1, "command": sys.argv[2]}).encode() + b"\\n")
print(connection.makefile().readline())
"""


@contextmanager
def serving(folder: Path, *, agents: tuple[int, ...], operators: tuple[int, ...]) -> Iterator[Path]:
    server = Server(
        folder / "socket",
        Box(folder).controller,
        agents=agents,
        operators=operators,
        take_system=lambda data: System(data["name"], (data["name"],)),
    )
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield folder / "socket"
    finally:
        server.stop()


def test_a_round_over_the_socket(tmp_path: Path) -> None:
    with serving(tmp_path, agents=(), operators=(os.getuid(),)) as path:
        opened = call(path, "open", stock={"name": "stock"}, plan={"num_directions": 2})
        assert opened["mode"].startswith("one slot")
        paired = call(path, "pair", direction="d", candidate={"name": "fast"})
        assert paired["reasons"] == []
        assert call(path, "check", attempt_id=1)["passed"]
        assert call(path, "promote", attempt_id=1)["is_promoted"]
        assert call(path, "seal")["is_accepted"]
        assert call(path, "status")["final"]["is_accepted"]


def test_agents_may_neither_open_nor_seal(tmp_path: Path) -> None:
    with serving(tmp_path, agents=(os.getuid(),), operators=()) as path:
        for command in ("open", "seal", "ledger", "__init__"):
            with pytest.raises(RequestError, match="expected one of"):
                call(path, command)
        with pytest.raises(RequestError, match="name a direction"):
            call(path, "close")
        assert call(path, "status")["num_entries"] == 0


def test_wrong_messages_are_refused_and_the_server_lives_on(tmp_path: Path) -> None:
    with serving(tmp_path, agents=(), operators=(os.getuid(),)) as path:
        for line in (b"no json\n", b'{"version": 9, "command": "status"}\n', b"[]\n", b"\n"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(line)
                answer = json.loads(connection.makefile().readline())
            assert answer["ok"] is False and answer["error"]
        with pytest.raises(RequestError, match="unexpected keyword"):
            call(path, "check", attempt_id=1, passed=True)
        with pytest.raises(RequestError, match="plan"):
            call(path, "open", stock={"name": "stock"}, plan={"alpha": 0.9})
        assert call(path, "status")["num_entries"] == 0


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is it running"):
        call(tmp_path / "socket", "status")


@pytest.mark.skipif(os.geteuid() != 0 or not PYTHON.exists(), reason="needs root, to be another user")
def test_the_kernel_says_who_asks() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="specpilot-test-") as name,
        serving(Path(name), agents=(61_921,), operators=(0,)) as path,
    ):
        Path(name).chmod(0o755)
        answers = {}
        for user in (61_921, 61_922):
            done = subprocess.run(
                [PYTHON, "-c", ASK, str(path), "status"],
                user=user,
                group=user,
                extra_groups=[],
                capture_output=True,
                text=True,
            )
            answers[user] = json.loads(done.stdout)
    assert answers[61_921]["ok"] is True
    assert answers[61_922] == {
        "version": 1,
        "ok": False,
        "error": "user 61922 may not use the controller",
        "type": "RequestError",
    }
