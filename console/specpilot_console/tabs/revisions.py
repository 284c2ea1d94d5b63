"""Revisions: what ran when, what differs, and the way back."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, badges, heading, note, table
from specpilot_console.switch_view import switch_html
from specpilot_service.schemas.admin import (
    RevisionDetail,
    RevisionDiff,
    RevisionImport,
    RevisionList,
    RollbackRequest,
    SwitchList,
    SwitchRequest,
    SwitchView,
)

__all__ = ["build", "diff_html", "revisions_html"]

_EVERY_S = 2.0


def build(frame: Frame) -> None:
    listing = gr.HTML(padding=False)
    with gr.Row():
        with gr.Column():
            number = gr.Dropdown(label="Revision", choices=[], allow_custom_value=True)
            reason = gr.Textbox(label="Reason", placeholder="kept in the audit log", max_length=500)
            with gr.Row():
                roll_back = frame.button("Roll back to this revision", "operator", variant="primary")
                apply = frame.button("Apply this imported revision", "operator")
            answer = gr.HTML(padding=False)
            progress = gr.HTML(padding=False)
        with gr.Column():
            before = gr.Dropdown(label="Before", choices=[], allow_custom_value=True)
            after = gr.Dropdown(label="After", choices=[], allow_custom_value=True)
            compare = frame.button("Show what differs")
            diff = gr.HTML(padding=False)
    with gr.Accordion("Export and import", open=False):
        with gr.Row():
            export = frame.button("Export the chosen revision")
            bring = frame.button("Import what is below", "operator")
        document = gr.Code(
            label="Document (YAML)", language="yaml", interactive=True, show_line_numbers=False, max_lines=24
        )

    choices = [number, before, after]
    frame.when_shown(_list_revisions, choices, [listing, *choices])
    frame.every(_EVERY_S, _show_both, (), [listing, progress])
    frame.on(roll_back.click, _begin_rollback, [number, reason], [answer])
    frame.on(apply.click, _apply_imported, [number, reason], [answer])
    frame.on(compare.click, _show_diff, [before, after], [diff])
    frame.on(export.click, _export_revision, [number], [answer, document])
    frame.on(bring.click, _import_document, [document, reason], [answer])


def _list_revisions(session: Session, number: Any, before: Any, after: Any) -> Any:
    found = session.fetch(RevisionList, "revisions.list")
    names = [
        (f"{view.number}: {view.profile_name} ({view.state})", str(view.number)) for view in found.revisions
    ]
    others = [str(view.number) for view in found.revisions if view.state in ("superseded", "rejected")]
    previous = others[0] if others else None
    current = None if found.current is None else str(found.current)
    return (
        revisions_html(found),
        gr.Dropdown(choices=names, value=number or previous),
        gr.Dropdown(choices=names, value=before or previous or current),
        gr.Dropdown(choices=names, value=after or current),
    )


def revisions_html(found: RevisionList) -> Markup:
    rows = [
        (
            view.number,
            badge(view.state),
            view.profile_name,
            view.actor,
            view.reason,
            view.applied_at,
            badges(*(badge(f"{gate.name}: {gate.verdict}", _tone(gate.verdict)) for gate in view.gates)),
        )
        for view in found.revisions
    ]
    columns = ["Revision", "State", "Profile", "By", "Why", "Applied", "Checks"]
    return Markup(heading("Revisions") + table(columns, rows, "No revision yet."))


def _tone(verdict: str) -> str:
    return {"passed": "good", "failed": "bad"}.get(verdict, "plain")


def _show_both(session: Session) -> Any:
    listing = revisions_html(session.fetch(RevisionList, "revisions.list"))
    switches = session.fetch(SwitchList, "switches.list").switches
    shown = (
        Markup(heading("Newest switch") + switch_html(switches[0])) if switches else note("No switch yet.")
    )
    return listing, shown


def _number(text: Any) -> int | None:
    return int(text) if str(text or "").isdecimal() else None


def _begin_rollback(session: Session, chosen: Any, reason: str) -> Markup:
    number = _number(chosen)
    if number is None or not reason.strip():
        return note("Choose a revision and give a reason.", "bad")
    body = RollbackRequest(reason=reason)
    view = session.fetch(SwitchView, "revisions.rollback", body=body, number=number)
    return note(f"Rollback {view.id} to revision {number} ({view.profile_name}) has begun.", "good")


def _apply_imported(session: Session, chosen: Any, reason: str) -> Markup:
    number = _number(chosen)
    if number is None or not reason.strip():
        return note("Choose a revision and give a reason.", "bad")
    body = SwitchRequest(revision=number, reason=reason)
    view = session.fetch(SwitchView, "switches.start", body=body)
    return note(f"Switch {view.id} to {view.profile_name} has begun.", "good")


def _show_diff(session: Session, before: Any, after: Any) -> Markup:
    old, new = _number(before), _number(after)
    if old is None or new is None:
        return note("Choose two revisions.", "bad")
    return diff_html(session.fetch(RevisionDiff, "revisions.diff", query={"before": old, "after": new}))


def diff_html(found: RevisionDiff) -> Markup:
    rows = [(line.path, _cell(line.before), _cell(line.after)) for line in found.lines]
    columns = ["What", f"Revision {found.before}", f"Revision {found.after}"]
    return table(columns, rows, "Nothing differs.")


def _cell(value: str | None) -> Any:
    return badge("absent", "plain") if value is None else value


def _export_revision(session: Session, chosen: Any) -> Any:
    number = _number(chosen)
    if number is None:
        return note("Choose a revision.", "bad"), gr.skip()
    return note(f"Revision {number} is below.", "good"), session.call("revisions.export", number=number)


def _import_document(session: Session, document: str | None, reason: str) -> Markup:
    if not (document or "").strip() or not reason.strip():
        return note("Put an exported revision below and give a reason.", "bad")
    body = RevisionImport(document=document or "", reason=reason)
    view = session.fetch(RevisionDetail, "revisions.import", body=body)
    return note(
        f"Imported as revision {view.number}; it is applied only by 'Apply this imported revision'.", "good"
    )
