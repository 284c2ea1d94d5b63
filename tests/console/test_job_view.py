"""A job on the page and in a terminal: what it waits for, for as long as it waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from specpilot_console.job_view import job_html, job_line, queue_html
from specpilot_console.tabs.checks import CheckPart, checks_html
from specpilot_service.schemas.admin_jobs import JobKindView, JobList, JobView

PART = CheckPart("audit", "Audits", "audits.start", "Start")


def job_of(job_id: str, **changes: Any) -> JobView:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    values: dict[str, Any] = dict(
        id=job_id, kind="audit", origin="operator", state="queued", revision=None, options={}, progress=None,
        result=None, error=None, actor="key:a", reason="r", created_at=now, started_at=None, ended_at=None,
    )  # fmt: skip
    return JobView(**(values | changes))


def page_of(*jobs: JobView) -> str:
    kinds = [JobKindView(name="audit", unavailable="", every_s=None)]
    return checks_html(PART, JobList(kinds=kinds, jobs=list(jobs)))


def test_the_queue_says_what_each_job_waits_for() -> None:
    running = job_of("job-1", state="running", started_at=datetime(2026, 11, 30, tzinfo=UTC))
    shown = page_of(
        job_of("job-4", waits_for="its turn", origin="gate"),
        job_of("job-3", waits_for="the end of job-1; <one> job at a time"),
        job_of("job-2", waits_for="an engine that is ready; now: draining"),
        running,
    )
    assert "the end of job-1; &lt;one&gt; job at a time" in shown
    # In the order in which they run: those of a switch first, then the oldest.
    queue = shown[shown.index("Queue") :]
    assert queue.index("job-4") < queue.index("job-2") < queue.index("an engine that is ready")
    assert queue.index("job-2") < queue.index("job-3")
    assert "Waits for" not in page_of(running) and queue_html([]) == ""


def test_a_job_that_waits_has_no_bar_and_one_that_runs_has() -> None:
    queued = job_of("job-1", waits_for="its turn")
    assert "its turn" in job_html(queued) and "progressbar" not in job_html(queued)
    running = queued.model_copy(update={"state": "running", "waits_for": ""})
    assert "Waits for" not in job_html(running) and "progressbar" in job_html(running)


def test_a_terminal_is_told_too() -> None:
    assert job_line(job_of("job-1", waits_for="its turn")) == "audit job-1 queued waits for its turn"
    assert job_line(job_of("job-1", state="running")) == "audit job-1 running"
    assert job_line(job_of("job-1", state="failed", error="no time")) == "audit job-1 failed no time"
