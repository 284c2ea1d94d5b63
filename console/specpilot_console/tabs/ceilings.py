"""Ceilings: the gap between what the hardware allows and what is measured."""

from __future__ import annotations

from specpilot_console.frame import Frame
from specpilot_console.tabs.checks import CheckPart, build_checks

__all__ = ["build"]


def build(frame: Frame) -> None:
    build_checks(frame, CheckPart("ceiling", "Ceiling gap", "ceilings.check", "Measure now"))
