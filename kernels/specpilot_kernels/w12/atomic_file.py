"""A file that is there whole, or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from specpilot_kernels.w12.safetensors_file import WeightFileError, named_errors

__all__ = ["PART_SUFFIX", "atomic_file"]

PART_SUFFIX = ".part"
"""Of what a killed writer leaves; the next writer of the same file begins it anew."""


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside ``path`` and give it that name, on disk, when the block ends; on an error nothing stays.

    Raises
    ------
    WeightFileError
        The file cannot be written, or another process is writing it.
    """
    part = path.with_name(path.name + PART_SUFFIX)
    with named_errors(path, "write"):
        file = _locked(part, path)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        finally:
            # What was not flushed is lost with the part file; only then may closing fail.
            with suppress(OSError):
                file.close()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _locked(part: Path, path: Path) -> BinaryIO:
    """The new part file, locked: a lock ends with its process, a file that is merely there would not.

    What a killed writer left is removed, not written: its name may be a link to something else.
    """
    while True:
        try:
            descriptor = os.open(
                part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
            )
            is_new = True
        except FileExistsError:
            if part.is_symlink() or not (part.is_file() or not part.exists()):
                raise WeightFileError(
                    f"{part}: is a link or no file; remove it, {path.name} is written there"
                ) from None
            try:
                descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            is_new = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another writer may have given the file its name, or begun anew, between opening and locking.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), part.lstat()):
                    if is_new:
                        return os.fdopen(descriptor, "r+b")
                    part.unlink()
        except BlockingIOError:
            os.close(descriptor)
            raise WeightFileError(f"{path}: another process is writing it") from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
