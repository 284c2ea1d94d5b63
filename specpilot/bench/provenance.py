"""What a measured row needs to be compared later: commit, versions, the chat template."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import specpilot
from specpilot.engines.base import Engine

__all__ = ["find_commit", "find_versions", "hash_chat_template"]

_PACKAGES = ("torch", "tokenizers", "numpy")
_PROBE = (
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "v"},
)


def find_commit() -> str | None:
    """Commit of the checkout this package runs from, ``+dirty`` with changed files; None outside one."""
    folder = Path(specpilot.__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # An installed copy may lie in somebody else's repository: the commit counts only if it holds this very
    # file.
    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit}+dirty" if commit and git("status", "--porcelain") else commit


def find_versions() -> Mapping[str, str]:
    installed = {name: metadata.version(name) for name in _PACKAGES}
    return {"specpilot": specpilot.__version__, "python": platform.python_version(), **installed}


def hash_chat_template(engine: Engine) -> str:
    """SHA-256 of the ids of one fixed conversation: equal for templates that render it equally."""
    ids = engine.apply_chat_template(_PROBE)
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
