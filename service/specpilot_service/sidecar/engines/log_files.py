"""Logs of engine processes: bounded while the process writes, read as one, kept after a crash.

The process has its file open for appending and knows nothing of this. When the file is full, its content moves to a
second one beside it, whose content is dropped, and the file is cut to nothing: what is written in between is lost, and
a process without a sidecar still has its log.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import deque
from pathlib import Path

__all__ = ["bound_log", "drop_old_logs", "keep_log", "last_lines"]


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def bound_log(path: Path, max_bytes: int) -> bool:
    """Move the content away if there is more than ``max_bytes``; whether it was."""
    try:
        if path.stat().st_size <= max_bytes:
            return False
        shutil.copyfile(path, _older(path))
        with path.open("r+b") as file:
            file.truncate(0)
    except FileNotFoundError:
        return False
    return True


def last_lines(path: Path, num_lines: int) -> tuple[list[str], bool]:
    """The last lines of a log, and whether older ones were left out; none if there is no such file."""
    kept: deque[str] = deque(maxlen=num_lines)
    num_read = 0
    for part in (_older(path), path):
        with (
            contextlib.suppress(FileNotFoundError),
            part.open(encoding="utf-8", errors="replace") as file,
        ):
            for line in file:
                kept.append(line.rstrip("\n"))
                num_read += 1
    return list(kept), num_read > num_lines


def keep_log(path: Path, kept: Path) -> None:
    """Copy all there is of a log."""
    with kept.open("wb") as target:
        for part in (_older(path), path):
            with contextlib.suppress(FileNotFoundError), part.open("rb") as source:
                shutil.copyfileobj(source, target)


def drop_old_logs(folder: Path, num_kept: int = 10) -> None:
    """Keep the logs of the last processes."""

    def age(path: Path) -> float:
        return path.stat().st_mtime

    for path in sorted(folder.glob("engine-*.log"), key=age)[:-num_kept]:
        path.unlink(missing_ok=True)
        _older(path).unlink(missing_ok=True)
