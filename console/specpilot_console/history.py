"""Points of a page's plot, oldest first; the page keeps them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from specpilot_service.schemas.admin import Traffic

__all__ = ["append_point"]

_MAX_POINTS = 300


def append_point(points: list[dict[str, Any]], traffic: Traffic) -> list[dict[str, Any]]:
    """``points`` and one of now: ``at`` ISO 8601 in UTC, ``tokens_per_s`` and ``tau`` (None: nothing was counted)."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    point = {"at": now, "tokens_per_s": traffic.tokens_per_s, "tau": traffic.tau}
    return [*points, point][-_MAX_POINTS:]
