"""One line of the table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True)
class Row:
    what: str
    measured: str
    limit: str
    is_ok: bool
