"""Programs the chart and image tests run; a test whose program is missing is skipped by its name."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.source_tree import REPO

__all__ = ["find_program", "require_program"]


def find_program(name: str) -> str | None:
    """In ``.tools/bin`` (``.ci/install_tools.py`` fills it), beside this Python, or on the path."""
    folders = [str(REPO / ".tools" / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return shutil.which(name, path=os.pathsep.join(folders))


def require_program(name: str) -> str:
    program = find_program(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program
