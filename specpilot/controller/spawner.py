"""The one part that stays root: it starts and stops systems for the controller, each under its arm's user.

A process of its own, forked before the controller gives its rights up, with a socket to it and to nobody else. It
understands two orders, ``start`` and ``stop``, and never runs anything under another user than the two it was given.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

from specpilot.controller.isolation import Users
from specpilot.controller.slots.base import Arm
from specpilot.errors import EngineError

__all__ = ["Spawner", "start_spawner"]

_STOP_WAIT_S = 5.0


class Spawner:
    """The controller's end. Thread rule: one order at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def start(self, arm: Arm, command: list[str], environment: dict[str, str]) -> int:
        """Start a command in a new scratch folder (HOME and TMPDIR); its process id."""
        return int(self._order(order="start", arm=arm, command=command, environment=environment)["pid"])

    def stop(self, arm: Arm) -> None:
        """End everything that runs under the arm's user and remove its scratch folder."""
        self._order(order="stop", arm=arm)

    def detach(self) -> int:
        """The socket's number, for a process that replaces this one."""
        return self._connection.detach()

    def close(self) -> None:
        self._connection.close()

    def _order(self, **order: Any) -> dict[str, Any]:
        self._connection.sendall(json.dumps(order).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise EngineError("spawner: it ended; start the controller again")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"spawner: {answer['error']}")
        return answer


def start_spawner(users: Users) -> Spawner:
    """Fork it. To be called as root, before any thread is started."""
    mine, its = socket.socketpair()
    if os.fork() == 0:
        status = 1
        try:
            mine.close()
            os.setsid()
            _serve(its, users)
            status = 0
        finally:
            os._exit(status)
    its.close()
    return Spawner(mine)


def _serve(connection: socket.socket, users: Users) -> None:
    scratch: dict[Arm, Path] = {}
    children: dict[Arm, subprocess.Popen[bytes]] = {}
    for line in connection.makefile("rb"):
        try:
            order = json.loads(line)
            arm: Arm = order["arm"]
            if arm not in get_args(Arm):
                raise ValueError(f"arm: got {arm!r}")
            user = users.of_arm(arm)
            _stop(arm, user, scratch, children)
            answer: dict[str, Any] = {}
            if order["order"] == "start":
                scratch[arm] = Path(tempfile.mkdtemp(prefix=f"specpilot-{arm}-"))
                os.chown(scratch[arm], user, user)
                children[arm] = _start(order["command"], order["environment"], scratch[arm], user)
                answer = {"pid": children[arm].pid}
            elif order["order"] != "stop":
                raise ValueError(f"order: got {order['order']!r}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            answer = {"error": str(error)}
        connection.sendall(json.dumps(answer).encode() + b"\n")
    for arm in list(children):
        _stop(arm, users.of_arm(arm), scratch, children)


def _start(
    command: list[str], environment: dict[str, str], scratch: Path, user: int
) -> subprocess.Popen[bytes]:
    """Nothing of the controller's environment and no open file but the log reaches the system."""
    own = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(scratch), "TMPDIR": str(scratch)}
    with open(scratch / "log", "wb") as log:
        return subprocess.Popen(
            command,
            env=own | environment,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=user,
            group=user,
            extra_groups=[],
            umask=0o077,
            start_new_session=True,
        )


def _stop(
    arm: Arm, user: int, scratch: dict[Arm, Path], children: dict[Arm, subprocess.Popen[bytes]]
) -> None:
    """All processes of the arm's user, which is nobody else's: one that detached itself must not live on."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _STOP_WAIT_S
        while (found := _processes_of(user)) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if arm in children:
                children[arm].poll()
            time.sleep(0.02)
    if child := children.pop(arm, None):
        child.wait(_STOP_WAIT_S)
    if folder := scratch.pop(arm, None):
        shutil.rmtree(folder, ignore_errors=True)


def _processes_of(user: int) -> list[int]:
    """Processes of a user that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if entry.stat().st_uid == user and state != "Z":
                    found.append(int(entry.name))
    return found
