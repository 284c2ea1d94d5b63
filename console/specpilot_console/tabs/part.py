"""A part of the appliance behind a list route: its state, its actions, and why it is unavailable where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from specpilot_console.client import ApiError, Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, facts, heading, note, problem, table
from specpilot_console.switch_view import ENDED, switch_html
from specpilot_service.schemas.admin import Overview, RevisionList
from specpilot_service.schemas.admin_routes import find_route

__all__ = ["PartAction", "build_part", "verdicts_html"]

_EVERY_S = 2.0


@dataclass(frozen=True)
class PartAction:
    """A button for ``route``; ``id_name`` is the path parameter that its text field fills, None without one."""

    label: str
    route: str
    id_name: str | None = None


def build_part(frame: Frame, title: str, listing: str, actions: tuple[PartAction, ...]) -> None:
    """State on top, refreshed while the tab is in front; what the sidecar answers below, as it answers it."""
    state = gr.HTML(padding=False)
    data = gr.JSON(label="Answer of the sidecar", visible=False)

    def refresh(session: Session) -> Any:
        try:
            found = session.call(listing)
        except ApiError as error:
            return Markup(heading(title) + problem(error)), gr.JSON(visible=False)
        return Markup(heading(title) + badge("available", "good")), gr.JSON(found, visible=True)

    frame.every(_EVERY_S, refresh, (), [state, data])
    with gr.Row():
        controls = [_controls(frame, action) for action in actions]
    said = gr.HTML(padding=False)
    result = gr.JSON(label="Result", visible=False)
    for action, (button, field) in zip(actions, controls, strict=True):
        frame.on(button.click, _work(action), [] if field is None else [field], [said, result])


def _controls(frame: Frame, action: PartAction) -> tuple[gr.Button, gr.Textbox | None]:
    with gr.Column(min_width=220):
        field = (
            None
            if action.id_name is None
            else gr.Textbox(label=action.id_name.replace("_", " ").capitalize())
        )
        return frame.button(action.label, find_route(action.route).role), field


def _work(action: PartAction) -> Callable[..., Any]:
    def work(session: Session, identifier: str = "") -> Any:
        path: dict[str, Any] = {}
        if action.id_name is not None:
            if not identifier.strip():
                return note(f"Give the {action.id_name.replace('_', ' ')}.", "bad"), gr.skip()
            path[action.id_name] = identifier.strip()
        try:
            found = session.call(action.route, **path)
        except ApiError as error:
            return problem(error), gr.JSON(visible=False)
        return note(f"{action.label}: done.", "good"), gr.JSON(found, visible=True)

    return work


def verdicts_html(session: Session, gate_name: str) -> Markup:
    """The check of this name: now, in the switch that runs, and of every revision."""
    view = session.fetch(Overview, "overview")
    verdict = view.audit if gate_name == "audit" else view.ceiling
    now = Markup(f"{badge(verdict.verdict)} {escape(verdict.message)}")
    parts = [heading("Revision that runs"), facts([("Now", now)])]
    if view.switch is not None and view.switch.state not in ENDED:
        parts += [heading("Switch that runs"), switch_html(view.switch)]
    rows = [
        (revision.number, revision.profile_name, badge(gate.verdict), gate.message, gate.checked_at)
        for revision in session.fetch(RevisionList, "revisions.list").revisions
        for gate in revision.gates
        if gate.name == gate_name
    ]
    columns = ["Revision", "Profile", "Verdict", "Message", "At"]
    parts += [heading("By revision"), table(columns, rows, "No switch has been checked yet.")]
    return Markup("".join(parts))
