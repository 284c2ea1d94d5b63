"""The tabs in their order."""

from __future__ import annotations

from collections.abc import Callable

from specpilot_console.frame import Frame
from specpilot_console.tabs import (
    audit_log,
    audits,
    ceilings,
    keys,
    logs,
    memory,
    overview,
    playground,
    profiles,
    revisions,
    rounds,
)

__all__ = ["TABS"]

TABS: tuple[tuple[str, Callable[[Frame], None]], ...] = (
    ("Overview", overview.build),
    ("Profiles", profiles.build),
    ("Revisions", revisions.build),
    ("Playground", playground.build),
    ("Ceilings", ceilings.build),
    ("Audits", audits.build),
    ("Rounds", rounds.build),
    ("Memory", memory.build),
    ("Keys", keys.build),
    ("Audit log", audit_log.build),
    ("Logs", logs.build),
)
