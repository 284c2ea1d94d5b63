"""Logs: what the engine wrote, also the one that crashed, and the switches that stop or start it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from specpilot_console.client import ApiError, Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, facts, log_text, note, problem, table
from specpilot_service.schemas.admin import EngineLog, EngineStatus, ReasonRequest

__all__ = ["build", "log_html"]


def build(frame: Frame) -> None:
    with gr.Row(elem_classes="sp-end"):
        which = gr.Radio(
            [("Running engine", "current"), ("Previous crash", "previous")], value="current", label="Log of"
        )
        lines = gr.Slider(50, 5000, value=200, step=50, label="Last lines")
        show = frame.button("Show")
    log = gr.HTML(padding=False)
    with gr.Row(elem_classes="sp-end"):
        reason = gr.Textbox(label="Reason", placeholder="kept in the audit log", max_length=500, scale=3)
        restart = frame.button("Restart the engine", "operator", variant="stop")
        drain = frame.button("Take no new requests", "operator")
        resume = frame.button("Take requests again", "operator")
    said = gr.HTML(padding=False)

    frame.when_shown(_show_log, [which, lines], [log])
    frame.on(show.click, _show_log, [which, lines], [log])
    frame.on(which.change, _show_log, [which, lines], [log])
    for button, route, text in (
        (restart, "engine.restart", "The engine restarts when its streams have ended."),
        (drain, "engine.drain", "No new requests are taken."),
        (resume, "engine.resume", "Requests are taken again."),
    ):
        frame.on(button.click, _action(route, text), [reason], [said])


def _show_log(session: Session, which: str, lines: float) -> Markup:
    try:
        found = session.fetch(EngineLog, "engine.logs", query={"which": which, "lines": int(lines)})
    except ApiError as error:
        # No crash is good news, no error.
        return note(str(error), "good") if error.status == 404 else problem(error)
    return log_html(found)


def log_html(found: EngineLog) -> Markup:
    parts: list[str] = []
    if found.crash is not None:
        crash = found.crash
        rows = [
            ("Engine", crash.instance_id),
            ("Revision", crash.revision),
            ("Ended", f"exit code {crash.exit_code}" if crash.signal is None else f"by {crash.signal}"),
            ("At", crash.at),
            ("Message", crash.message),
        ]
        parts.append(facts(rows))
    if found.is_cut:
        parts.append(note("Older lines are left out."))
    return Markup("".join(parts) + log_text(found.lines or ["(empty)"]))


def _action(route: str, text: str) -> Callable[..., Markup]:
    def act(session: Session, reason: str) -> Markup:
        if not reason.strip():
            return note("Give a reason.", "bad")
        status = session.fetch(EngineStatus, route, body=ReasonRequest(reason=reason))
        rows: list[tuple[Any, ...]] = [
            (engine.id, engine.role, badge(engine.state), engine.num_in_flight) for engine in status.instances
        ]
        return Markup(
            note(text, "good") + table(["Engine", "Role", "State", "In flight"], rows, "No engine runs.")
        )

    return act
