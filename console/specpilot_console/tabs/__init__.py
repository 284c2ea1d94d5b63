"""The tabs in their order."""

from __future__ import annotations

from collections.abc import Callable

from specpilot_console.frame import Frame
from specpilot_console.tabs import overview, profiles, revisions

__all__ = ["TABS"]

TABS: tuple[tuple[str, Callable[[Frame], None]], ...] = (
    ("Overview", overview.build),
    ("Profiles", profiles.build),
    ("Revisions", revisions.build),
)
