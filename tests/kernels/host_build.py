"""Device code compiled for the host."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import specpilot_kernels

__all__ = ["build_for_host"]


def build_for_host(source: str, folder: Path) -> ctypes.CDLL:
    """A shared object of a source beside the tests, which includes the kernels' headers; skips without a compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    out = folder / f"{source}.so"
    include = Path(specpilot_kernels.__file__).parent / "include"
    command = [compiler, "-std=c++17", "-O1", "-x", "c++", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, str(Path(__file__).parent / source), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))
