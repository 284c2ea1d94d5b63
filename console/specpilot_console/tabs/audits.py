"""Audits: whether served tokens are the target's own, by token forcing."""

from __future__ import annotations

import gradio as gr

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup
from specpilot_console.tabs.part import PartAction, build_part, verdicts_html

__all__ = ["build"]

_EVERY_S = 2.0


def build(frame: Frame) -> None:
    actions = (
        PartAction("Start an audit", "audits.start"),
        PartAction("Show audit", "audits.show", "audit_id"),
    )
    build_part(frame, "Token-forcing audits", "audits.list", actions)
    verdicts = gr.HTML(padding=False)
    frame.every(_EVERY_S, _show_verdicts, (), [verdicts])


def _show_verdicts(session: Session) -> Markup:
    return verdicts_html(session, "audit")
