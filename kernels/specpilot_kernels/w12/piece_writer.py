"""Writing a file by pieces, beside the caller's work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.lanes import Lanes
from specpilot_kernels.w12.safetensors_file import WeightFileError

__all__ = ["SYNC_BYTES", "PieceWriter", "as_bytes"]

SYNC_BYTES = 2**25
"""Written between two requests to bring it to the disk: so the disk has work from the beginning, not at the end."""


class PieceWriter:
    """Puts bytes one after the other, from where the file stands. Errors are raised as :class:`Lanes` raises them.

    Attributes
    ----------
    at
        Bytes put so far.
    """

    def __init__(self, file: BinaryIO, path: Path, lanes: Lanes) -> None:
        self.at = 0
        self._file, self._path, self._lanes = file, path, lanes
        self._unsynced = 0

    def put(self, name: str, data: NDArray[Any]) -> None:
        """Write an array's bytes, a part of the tensor ``name``; they must not change any more."""
        self.at += data.nbytes
        self._call("write", name, self._file.write, as_bytes(data).data)
        self._unsynced += data.nbytes
        if self._unsynced >= SYNC_BYTES:
            self._unsynced = 0
            self._call("sync", name, os.fdatasync, self._file.fileno())

    def go_back(self, at: int) -> None:
        """What was put from there on is written over."""
        self._lanes.call("write", self._file.seek, at - self.at, os.SEEK_CUR)
        self.at = at

    def end(self) -> None:
        """The file ends here. Waits until all is written."""
        self._lanes.call("write", self._file.truncate)
        self._lanes.finish()

    def _call(self, lane: str, name: str, function: Callable[..., object], *arguments: object) -> None:
        def call() -> None:
            try:
                function(*arguments)
            except OSError as error:
                reason = error.strerror or error
                raise WeightFileError(f"{self._path}: {name}: cannot write: {reason}") from None

        self._lanes.call(lane, call)


def as_bytes(data: NDArray[Any]) -> NDArray[np.uint8]:
    """The same memory, where it is contiguous."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
