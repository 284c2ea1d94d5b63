"""One engine process: its port, environment, log file and end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from specpilot_service.settings import ENV_PREFIX

__all__ = [
    "EngineProcess",
    "child_environment",
    "end_leftovers",
    "end_process",
    "free_port",
    "launched",
    "with_port",
]

_LAUNCHER = Path(__file__).with_name("launch.py")
_MARK = "ENGINE_OF_SIDECAR"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_port(command: Sequence[str], port: int) -> list[str]:
    """The command with this value behind ``--port`` and loopback behind ``--host``; added where they are missing."""
    found = list(command)
    for flag, value in (("--host", "127.0.0.1"), ("--port", str(port))):
        if flag in found[:-1]:
            found[found.index(flag) + 1] = value
        else:
            found += [flag, value]
    return found


def _mark_of(state: Path) -> str:
    return hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:32]


def launched(command: Sequence[str], priority: str = "normal") -> list[str]:
    """The command behind the launcher, which ties it to this process."""
    return [sys.executable, str(_LAUNCHER), str(os.getpid()), priority, *command]


def child_environment(state: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What a child of the sidecar inherits, what it is given, and the mark by which ``end_leftovers`` knows it."""
    # The sidecar's own settings are not the child's, which refuses variables that it does not know.
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(ENV_PREFIX)}
    return {**inherited, **environment, _MARK: _mark_of(state), "PYTHONUNBUFFERED": "1"}


async def end_process(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """SIGTERM, then SIGKILL for the whole group; returns when the process is gone."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # also what it started itself
    await process.wait()


def end_leftovers(state: Path) -> list[int]:
    """Kill processes of an earlier sidecar of this state folder that outlived it; their ids.

    They are known by a mark in their environment, so a process that merely has the id of an old engine is left alone.
    """
    mark = f"{_MARK}={_mark_of(state)}".encode()
    ended = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
                ended.append(int(folder.name))
    return ended


class EngineProcess:
    """Started once. The log file holds what the process writes, and nothing else."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log_path: Path) -> None:
        self._process, self.port, self.log_path = process, port, log_path

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], *, state: Path, log_path: Path
    ) -> EngineProcess:
        """Raises OSError if no process can be made; a wrong command shows as its exit."""
        port = free_port()
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log_file:  # appending: the file is cut while it is written to
            process = await asyncio.create_subprocess_exec(
                *launched(with_port(command, port)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env=child_environment(state, environment),
                start_new_session=True,  # a Ctrl-C is for the sidecar, which lets streams finish first
            )
        return cls(process, port, log_path)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """The exit code, negative for a signal."""
        return await self._process.wait()

    async def stop(self, timeout_s: float) -> None:
        """Ends it; returns when the process is gone."""
        await end_process(self._process, timeout_s)
