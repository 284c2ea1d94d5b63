"""Jobs of one kind: begin, watch live, cancel, look at one. Audits and ceilings are made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.job_view import job_html, jobs_html, queue_html
from specpilot_console.markup import Markup, heading, note
from specpilot_console.tabs.part import verdicts_html
from specpilot_service.schemas.admin import ReasonRequest
from specpilot_service.schemas.admin_jobs import CheckRequest, JobList, JobView

__all__ = ["CheckPart", "build_checks", "checks_html"]

_EVERY_S = 1.0


@dataclass(frozen=True)
class CheckPart:
    """A kind of job in the console.

    Attributes
    ----------
    kind
        Name of the kind, which is also the name of its gate.
    start
        Route that begins one.
    show_result
        What a job's result looks like; by default only its verdict is shown.
    """

    kind: str
    title: str
    start: str
    button: str
    show_result: Callable[[JobView], Markup] = lambda job: Markup("")


def build_checks(frame: Frame, part: CheckPart) -> None:
    with gr.Row(elem_classes="sp-end"):
        reason = gr.Textbox(label="Reason", placeholder="kept in the audit log", max_length=500, scale=3)
        options = gr.Textbox(label="Options, as a JSON object", placeholder="empty: the usual ones", scale=2)
        begin = frame.button(part.button, "operator", variant="primary")
    with gr.Row(elem_classes="sp-end"):
        job = gr.Dropdown(label="Job", choices=[], allow_custom_value=True, scale=3)
        show = frame.button("Show it")
        cancel = frame.button("Cancel it", "operator", variant="stop")
    said = gr.HTML(padding=False)
    detail = gr.HTML(padding=False)
    raw = gr.JSON(label="Result", visible=False)
    live = gr.HTML(padding=False)
    verdicts = gr.HTML(padding=False)

    def refresh(session: Session) -> Any:
        return checks_html(part, _jobs(session, part)), verdicts_html(session, part.kind)

    def choices(session: Session, chosen: str | None = None) -> Any:
        # No state in their names: a list that is open does not change.
        found = [(f"{view.id}: {view.reason}", view.id) for view in _jobs(session, part).jobs]
        return gr.Dropdown(choices=found, value=chosen or (found[0][1] if found else None))

    def start(session: Session, reason: str, text: str) -> Any:
        if not reason.strip():
            return note("Give a reason.", "bad"), gr.skip()
        try:
            given = json.loads(text) if text.strip() else {}
        except ValueError:
            given = None
        if not isinstance(given, dict):
            return note("Options: expected a JSON object, for instance {}.", "bad"), gr.skip()
        begun = session.fetch(JobView, part.start, body=CheckRequest(options=given, reason=reason))
        return note(f"Job {begun.id} is queued.", "good"), choices(session, begun.id)

    def stop(session: Session, job_id: str | None, reason: str) -> Markup:
        if not job_id:
            return note("Choose a job.", "bad")
        body = ReasonRequest(reason=reason.strip() or "stopped in the console")
        view = session.fetch(JobView, "jobs.cancel", body=body, job_id=job_id)
        return note(f"Job {view.id} is {'cancelled' if view.ended_at else 'being cancelled'}.", "good")

    def look(session: Session, job_id: str | None) -> Any:
        if not job_id:
            return note("Choose a job.", "bad"), gr.skip()
        view = session.fetch(JobView, "jobs.show", job_id=job_id)
        shown = Markup(job_html(view) + ("" if view.result is None else part.show_result(view)))
        return shown, gr.JSON(view.result, visible=view.result is not None)

    frame.every(_EVERY_S, refresh, (), [live, verdicts])
    frame.when_shown(choices, (), [job])
    frame.on(begin.click, start, [reason, options], [said, job])
    frame.on(cancel.click, stop, [job, reason], [said])
    frame.on(show.click, look, [job], [detail, raw])


def _jobs(session: Session, part: CheckPart) -> JobList:
    return session.fetch(JobList, "jobs.list", query={"kind": part.kind})


def checks_html(part: CheckPart, found: JobList) -> Markup:
    """The job that runs, those that wait, and those that have ended; or why there can be none."""
    parts: list[str] = [heading(part.title)]
    why = found.kinds[0].unavailable if found.kinds else "this sidecar has no such check"
    if why:
        parts.append(note(f"Unavailable: {why}."))
    for job in found.jobs:
        if job.state == "running":
            parts.append(job_html(job))
    # In the order in which they run; they are listed newest first.
    queued = [job for job in reversed(found.jobs) if job.state == "queued"]
    parts.append(queue_html(sorted(queued, key=lambda job: job.origin != "gate")))
    if found.kinds and (every_s := found.kinds[0].every_s) is not None:
        parts.append(note(f"Runs every {every_s / 3600:.1f} hours."))
    ended = [job for job in found.jobs if job.ended_at is not None][:10]
    if ended and ended[0].result is not None:
        parts += [heading(f"Newest: {ended[0].id}"), job_html(ended[0]), part.show_result(ended[0])]
    parts.append(jobs_html(ended, "No job of this kind has ended yet."))
    return Markup("".join(parts))
