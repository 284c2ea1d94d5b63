"""What a verb hands back to ``main``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """``report`` is the object that ``--json`` prints; not ``is_ok`` is exit code 1."""

    report: dict[str, Any]
    is_ok: bool = True
