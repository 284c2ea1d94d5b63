"""Rounds: optimization on this machine in a maintenance window."""

from __future__ import annotations

from specpilot_console.frame import Frame
from specpilot_console.tabs.part import PartAction, build_part

__all__ = ["build"]


def build(frame: Frame) -> None:
    actions = (
        PartAction("Start a round", "rounds.start"),
        PartAction("Show round", "rounds.show", "round_id"),
        PartAction("Stop round", "rounds.stop", "round_id"),
    )
    build_part(frame, "Optimization rounds", "rounds.list", actions)
