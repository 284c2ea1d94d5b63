"""Finds and loads the CUDA kernels that ``make kernels`` builds; importing this needs neither a GPU nor the build."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

__all__ = ["BUILD_FOLDER", "LIBRARY_NAME", "load_library"]

BUILD_FOLDER = Path(__file__).parent / "built"
"""Where ``make kernels`` puts the shared object, which holds the code of all architectures."""

LIBRARY_NAME = "specpilot_cuda.so"


@functools.cache
def load_library() -> ctypes.CDLL:
    """The kernels. Which of them a device runs, :mod:`specpilot_kernels.device` says.

    Raises
    ------
    RuntimeError
        They have not been built, or do not load; the message says what to do.
    """
    path = BUILD_FOLDER / LIBRARY_NAME
    if not path.is_file():
        raise RuntimeError(
            f"{path.name}: not built in {BUILD_FOLDER.name}/; run `make kernels`, which needs nvcc 12.8 or newer"
        )
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(
            f"{path.name} does not load: {error}; build it again with `make kernels`"
        ) from error
