"""Copies of the code that candidates run from: what was measured is what is promoted, whatever the original becomes."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from specpilot.errors import RequestError

__all__ = ["take_tree"]

_MAX_BYTES = 1 << 30
_MAX_FILES = 20_000
_SKIPPED = {".git", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def take_tree(source: Path, trees: Path) -> str:
    """Copy a folder to ``trees/<sha256>``, for everybody to read; returns the hash.

    Links, devices, and files of the controller's own user are refused: through them a caller would be given what the
    controller can read and the caller cannot.

    Raises
    ------
    RequestError
        For these, for a folder that cannot be read, and for one that is too large.
    """
    copy = Path(tempfile.mkdtemp(prefix=".taking-", dir=trees))
    try:
        digest = _copy(source, copy)
        target = trees / digest
        if target.exists():
            return digest
        for path in [*copy.rglob("*"), copy]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        copy.rename(target)
        return digest
    except OSError as error:
        raise RequestError(f"tree {source}: cannot be read: {error}") from None
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _copy(source: Path, copy: Path) -> str:
    lines: list[str] = []
    num_bytes = 0
    if source.is_symlink() or not source.is_dir():
        raise RequestError(f"tree {source}: expected a folder, and no link")
    for folder, names, files in os.walk(source, onerror=_refuse):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        for name in [*names, *files]:
            if (Path(folder) / name).is_symlink():
                raise RequestError(f"tree {source}: {name} is a link, expected files")
        for name in sorted(files):
            path = Path(folder) / name
            content = _read(path)
            num_bytes += len(content)
            if len(lines) >= _MAX_FILES or num_bytes > _MAX_BYTES:
                raise RequestError(f"tree {source}: more than {_MAX_FILES} files or {_MAX_BYTES} bytes")
            relative = path.relative_to(source)
            lines.append(f"{relative} {hashlib.sha256(content).hexdigest()}\n")
            (copy / relative).parent.mkdir(parents=True, exist_ok=True)
            (copy / relative).write_bytes(content)
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def _read(path: Path) -> bytes:
    """Contents of a plain file that is not the controller's; a link put there meanwhile is not followed."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or (found.st_uid == os.geteuid() and found.st_uid != 0):
            raise RequestError(f"tree: {path} is no plain file of the caller's")
        return file.read(_MAX_BYTES + 1)


def _refuse(error: OSError) -> None:
    raise error
