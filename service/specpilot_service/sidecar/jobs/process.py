"""The process of one job: lowest priority, one thread, progress out of its stdout, all else into its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from specpilot.errors import SpecPilotError
from specpilot_service.schemas.admin_jobs import JobProgress
from specpilot_service.sidecar.engines.process import child_environment, end_process, launched

__all__ = ["JobFailed", "JobProcess", "read_result"]

_STOP_TIMEOUT_S = 2.0
_MAX_LINE_BYTES = 64 * 1024
_MAX_LOG_BYTES = 4 * 2**20
_MAX_RESULT_BYTES = 4 * 2**20
# More threads would take the caches and the memory of the engine, which no priority protects.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class JobFailed(SpecPilotError):
    """A job ended without a result."""


def read_result(path: Path) -> dict[str, Any]:
    """The result that a program wrote. Raises JobFailed for anything that is none."""
    try:
        if path.stat().st_size > _MAX_RESULT_BYTES:
            raise JobFailed(f"result: got more than {_MAX_RESULT_BYTES} bytes; put large parts beside it")
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise JobFailed("result: the program ended well and wrote none") from None
    except (ValueError, RecursionError):
        raise JobFailed("result: got no JSON") from None
    is_object = isinstance(found, dict) and isinstance(found.get("message"), str) and "passed" in found
    if not is_object or not (found["passed"] is None or isinstance(found["passed"], bool)):
        raise JobFailed("result: expected an object with passed (true, false or null) and message (text)")
    return found


class JobProcess:
    """Started once; ``progress`` must be read to its end."""

    def __init__(self, process: asyncio.subprocess.Process, log_file: BinaryIO) -> None:
        self._process, self._log = process, log_file
        self._num_logged = 0
        self._last_line = ""
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, command: Sequence[str], *, state: Path, folder: Path, priority: str) -> JobProcess:
        """``priority`` as in ``launch.py``. Raises OSError if no process can be made."""
        log_file = (folder / "log").open("wb")
        try:
            process = await asyncio.create_subprocess_exec(
                *launched(command, priority),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=child_environment(state, _ENVIRONMENT),
                start_new_session=True,
            )
        except OSError:
            log_file.close()
            raise
        return cls(process, log_file)

    async def progress(self) -> AsyncIterator[JobProgress]:
        """What the program reports, until it has closed its output; everything else goes to the log."""
        assert self._process.stdout is not None and self._process.stderr is not None
        draining = asyncio.create_task(self._log_all(self._process.stderr))
        try:
            async for line in _lines(self._process.stdout):
                found = _progress_of(line)
                if found is None:
                    self._note(line)
                else:
                    yield found
            await draining
        finally:
            draining.cancel()

    async def _log_all(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            self._note(line)

    def _note(self, line: bytes) -> None:
        if text := line.decode(errors="replace").strip():
            self._last_line = text[:300]
        if self._num_logged < _MAX_LOG_BYTES:
            self._num_logged += self._log.write(line + b"\n")
            self._log.flush()

    async def wait(self) -> None:
        """Raises JobFailed unless it ends with 0."""
        code = await self._process.wait()
        if code != 0:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise JobFailed(f"ended with {how}; its last line: {self._last_line or 'no output'}")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def processor_s(self) -> float:
        """Processor time that it and its ended children had, seconds; 0 once it has ended."""
        try:
            # The name, in brackets, may hold anything; utime, stime, cutime and cstime are fields 14 to 17.
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return 0.0
        ticks = sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def stop(self) -> None:
        """End it, paused or not, with all that it started."""
        self.resume()
        await end_process(self._process, _STOP_TIMEOUT_S)
        self._log.close()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines without their ends; longer ones than the limit come in pieces."""
    rest = b""
    while data := await stream.read(_MAX_LINE_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > _MAX_LINE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


def _progress_of(line: bytes) -> JobProgress | None:
    try:
        found = json.loads(line)
        return JobProgress.model_validate(found) if isinstance(found, dict) and "done" in found else None
    except (ValueError, RecursionError, ValidationError):
        return None
