"""Finds and loads the CUDA kernels that ``make kernels`` builds; importing this needs neither a GPU nor the build."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from specpilot_kernels.device import Arch

__all__ = ["BUILD_FOLDER", "load_library"]

BUILD_FOLDER = Path(__file__).parent / "built"
"""Where ``make kernels`` puts one shared object for each architecture."""


@functools.cache
def load_library(arch: Arch) -> ctypes.CDLL:
    """The kernels of an architecture.

    Raises
    ------
    RuntimeError
        They have not been built, or do not load; the message says what to do.
    """
    path = BUILD_FOLDER / f"specpilot_{arch}.so"
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
