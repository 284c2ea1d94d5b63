"""Ceilings: the gap between what the hardware allows and what is measured."""

from __future__ import annotations

import gradio as gr

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup
from specpilot_console.tabs.part import PartAction, build_part, verdicts_html

__all__ = ["build"]

_EVERY_S = 2.0


def build(frame: Frame) -> None:
    build_part(frame, "Ceiling gap", "ceilings.show", (PartAction("Measure now", "ceilings.check"),))
    verdicts = gr.HTML(padding=False)
    frame.every(_EVERY_S, _show_verdicts, (), [verdicts])


def _show_verdicts(session: Session) -> Markup:
    return verdicts_html(session, "ceiling")
