"""Audit log: every change of state, in a chain of hashes."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, note, table
from specpilot_service.schemas.admin_access import AuditPage, ChainReport

__all__ = ["build", "entries_html"]


def build(frame: Frame) -> None:
    with gr.Row():
        action = gr.Textbox(label="Action", placeholder="switch. or key.create; empty: all")
        limit = gr.Slider(10, 1000, value=50, step=10, label="Entries")
    with gr.Row():
        newest = frame.button("Newest entries")
        older = frame.button("Older entries")
        verify = frame.button("Verify the chain")
        export = frame.button("Export all")
    said = gr.HTML(padding=False)
    entries = gr.HTML(padding=False)
    before = gr.JSON(visible="hidden")
    lines = gr.Code(
        label="All entries, one JSON object a line",
        language="json",
        visible=False,
        interactive=False,
        max_lines=24,
        show_line_numbers=False,
    )

    frame.when_shown(_show_newest, [action, limit], [said, entries, before])
    frame.on(newest.click, _show_newest, [action, limit], [said, entries, before])
    frame.on(older.click, _show_older, [action, limit, before], [said, entries, before])
    frame.on(verify.click, _verify_chain, (), [said])
    frame.on(export.click, _export_all, (), [said, lines])


def _show_newest(session: Session, action: str, limit: float) -> Any:
    return _page(session, action, limit, None)


def _show_older(session: Session, action: str, limit: float, before: dict[str, int] | None) -> Any:
    if not before:
        return note("There are no older entries."), gr.skip(), gr.skip()
    return _page(session, action, limit, before["before"])


def _page(session: Session, action: str, limit: float, before: int | None) -> Any:
    query = {"action": action.strip() or None, "limit": int(limit), "before": before}
    page = session.fetch(AuditPage, "audit_log.list", query=query)
    following = None if page.next_before is None else {"before": page.next_before}
    return "", entries_html(page), following


def entries_html(page: AuditPage) -> Markup:
    rows = [
        (
            entry.seq,
            entry.at,
            entry.actor,
            badge(entry.action, "plain"),
            entry.subject,
            json.dumps(entry.detail, ensure_ascii=False),
            entry.hash[:12],
        )
        for entry in page.entries
    ]
    return table(["No.", "At", "Who", "Action", "Subject", "Detail", "Hash"], rows, "No entries.")


def _verify_chain(session: Session) -> Markup:
    report = session.fetch(ChainReport, "audit_log.verify")
    text = f"{report.message}; the newest hash begins with {report.head_hash[:16]}."
    return note(text, "good" if report.is_intact else "bad")


def _export_all(session: Session) -> Any:
    text = session.call("audit_log.export")
    said = note(f"{text.count(chr(10))} entries are below; the arrow in the corner saves them.", "good")
    return said, gr.Code(text, visible=True)
