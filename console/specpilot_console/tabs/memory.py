"""Memory: mechanisms that rounds have found and what they need."""

from __future__ import annotations

from specpilot_console.frame import Frame
from specpilot_console.tabs.part import PartAction, build_part

__all__ = ["build"]


def build(frame: Frame) -> None:
    actions = (PartAction("Show entry", "memory.show", "entry_id"),)
    build_part(frame, "Memory of mechanisms", "memory.list", actions)
