"""The repository's tracked files and Python modules, as the structural tests read them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGE_DIRS", "REPO", "Module", "find_modules", "tracked_files"]

REPO = Path(__file__).resolve().parent.parent
PACKAGE_DIRS = {
    "specpilot_kernels": "kernels/specpilot_kernels",
    "specpilot": "specpilot",
    "specpilot_service": "service/specpilot_service",
    "specpilot_console": "console/specpilot_console",
}


@dataclass(frozen=True)
class Module:
    """One Python file of a package: its dotted name, and whether it is a package's ``__init__``."""

    name: str
    path: Path
    is_package: bool


def find_modules(root: Path = REPO) -> list[Module]:
    """All modules of the four packages under ``root``, sorted by name."""
    modules = []
    for package, folder in PACKAGE_DIRS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            modules.append(Module(".".join(parts[:-1] if is_package else parts), path, is_package))
    return sorted(modules, key=lambda module: module.name)


def tracked_files() -> list[Path]:
    """Files git tracks, and new ones it does not ignore, that exist on disk; absolute paths."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [REPO / name for name in sorted(set(listing.split("\0"))) if name and (REPO / name).is_file()]
