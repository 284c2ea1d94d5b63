"""How a job is shown, wherever it is shown."""

from __future__ import annotations

from html import escape

from specpilot_console.markup import Markup, badge, facts, heading, note, table
from specpilot_service.schemas.admin_jobs import JobView

__all__ = ["job_html", "job_line", "jobs_html", "progress_html", "queue_html", "verdict_badge"]


def _share(job: JobView) -> float | None:
    """Done so far, 0 to 1; None while the total is not known."""
    progress = job.progress
    if progress is None or not progress.total:
        return None
    return min(1.0, max(0.0, progress.done / progress.total))


def job_line(job: JobView) -> str:
    """One line for a terminal."""
    share, message = _share(job), "" if job.progress is None else job.progress.message
    state = "paused" if job.is_paused else job.state
    waits = f"waits for {job.waits_for}" if job.waits_for else ""
    words = [
        job.kind,
        job.id,
        state,
        "" if share is None else f"{share:.0%}",
        waits,
        message,
        job.error or "",
    ]
    return " ".join(filter(None, words))


def progress_html(job: JobView) -> Markup:
    """A bar for what is done, striped while it is paused; a moving one while the total is not known."""
    share = _share(job)
    is_over = job.ended_at is not None
    kind = "sp-bar sp-paused" if job.is_paused else "sp-bar"
    value = f'aria-valuenow="{100 * share:.0f}"' if share is not None else ""
    if share is None and not is_over and job.state == "running":
        kind += " sp-moving"
    width = 100 if job.state == "succeeded" else 0 if share is None else 100 * share
    words = [
        f"{share:.0%}" if share is not None and not is_over else "",
        job.progress.message if job.progress else "",
    ]
    if job.is_paused:
        words.append("paused: requests wait for a place")
    text = " · ".join(filter(None, words))
    return Markup(
        f'<div class="{kind}" role="progressbar" aria-valuemin="0" aria-valuemax="100" {value}>'
        f'<div style="width:{width:.1f}%"></div></div><div class="sp-small">{escape(text)}</div>'
    )


def verdict_badge(job: JobView) -> Markup:
    if job.result is None:
        return badge("paused" if job.is_paused else job.state)
    return badge({True: "passed", False: "failed", None: "not decided"}[job.result["passed"]])


def job_html(job: JobView) -> Markup:
    parts = [progress_html(job)] if job.state == "running" else []
    rows = [
        (
            "Job",
            f"{job.id}, {job.kind}, for {'the ' if job.origin != 'gate' else 'a '}{_ORIGINS[job.origin]}",
        ),
        ("State", Markup(badge("paused" if job.is_paused else job.state))),
        *([("Waits for", job.waits_for)] if job.waits_for else []),
        ("Revision", job.revision),
        ("By", f"{job.actor}: {job.reason}"),
        ("Began", job.started_at),
        ("Ended", job.ended_at),
    ]
    if job.result is not None:
        rows.append(("Verdict", Markup(f"{verdict_badge(job)} {escape(job.result['message'])}")))
    parts.append(facts(rows))
    if job.error:
        parts.append(note(job.error, "bad"))
    return Markup("".join(parts))


def queue_html(jobs: list[JobView]) -> Markup:
    """Queued jobs with what each waits for; nothing without any."""
    if not jobs:
        return Markup("")
    rows = [
        (
            job.id,
            badge(job.state),
            job.waits_for,
            _ORIGINS[job.origin],
            f"{job.actor}: {job.reason}",
            job.created_at,
        )
        for job in jobs
    ]
    return Markup(heading("Queue") + table(["Job", "State", "Waits for", "For", "By", "Since"], rows))


def jobs_html(jobs: list[JobView], empty: str) -> Markup:
    rows = [
        (
            job.id,
            verdict_badge(job),
            job.result["message"] if job.result is not None else job.error,
            job.revision,
            _ORIGINS[job.origin],
            job.ended_at or job.started_at or job.created_at,
        )
        for job in jobs
    ]
    return table(["Job", "Verdict", "Message", "Revision", "For", "At"], rows, empty)


_ORIGINS = {"operator": "operator", "schedule": "schedule", "gate": "switch"}
