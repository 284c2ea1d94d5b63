"""Audits: whether served tokens are the target's own, by token forcing."""

from __future__ import annotations

import gradio as gr

from specpilot_console.audit_view import audit_result_html
from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.job_view import job_html
from specpilot_console.markup import Markup, heading
from specpilot_console.tabs.part import PartAction, build_part, verdicts_html
from specpilot_service.schemas.admin_jobs import JobList

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
    """The newest audit, live and with its result, then what gates said."""
    newest = [
        Markup(heading(f"Audit {job.id}") + job_html(job) + audit_result_html(job))
        for job in session.fetch(JobList, "audits.list", query={"limit": 1}).jobs
    ]
    return Markup("".join([*newest, verdicts_html(session, "audit")]))
