"""An audit on the page: numbers of the verdict, the cause of an unavailable one, and nothing that runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from specpilot.forcing import Answer, Rules, ScoredArm, Verdict, judge
from specpilot.forcing.accuracy import accuracy_change
from specpilot.forcing.events import Event
from specpilot.forcing.job import result_of
from specpilot.forcing.scores import ArmCounts
from specpilot_console.audit_view import audit_result_html
from specpilot_console.style import CSS
from specpilot_service.schemas.admin_jobs import JobView


class Scorer:
    """Finds every event as it is: stock never repeats it and no margin moves."""

    def describe(self) -> Any:
        from specpilot.forcing import ScorerDescription

        return ScorerDescription("<b>scorer</b>", "m", "fp32")

    def rescore(self, ids: Any, index: int) -> tuple[int, float]:
        return 7, 3.0

    def continue_greedily(self, ids: Any, num_tokens: int) -> list[int]:
        return [7]


def verdict_of(num_wrong: int) -> Verdict:
    names = tuple(f"r{i:02d}" for i in range(20))
    answers = tuple(Answer(name, (1, 2), (3,) * 150, "length") for name in names)
    events = tuple(
        (Event(name, 5, 3, 7, 3.0, (1, 2)),) if i < num_wrong else () for i, name in enumerate(names)
    )
    large = np.array([len(group) for group in events])
    system = ScoredArm(answers, ArmCounts(names, np.full(20, 150), large, large), events)
    nothing = np.zeros(20, np.int64)
    stock = ScoredArm(
        tuple(replace(a, output_ids=(4,) * 150) for a in answers),
        ArmCounts(names, np.full(20, 150), nothing, nothing),
        ((),) * 20,
    )
    right = dict.fromkeys(names, True)
    accuracy = accuracy_change(right | {"r00": False}, right)
    return judge(system, stock, Scorer(), Rules(), accuracy=accuracy)  # type: ignore[arg-type]


def job_of(**changes: Any) -> JobView:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    values: dict[str, Any] = dict(
        id="job-1", kind="audit", origin="operator", state="succeeded", revision=1, options={}, progress=None,
        result=None, error=None, actor="a", reason="r", created_at=now, started_at=now, ended_at=now,
    )  # fmt: skip
    return JobView(**(values | changes))


@pytest.mark.parametrize(("num_wrong", "word"), [(0, "accepted"), (12, "rejected")])
def test_a_verdict_is_shown_with_its_numbers(num_wrong: int, word: str) -> None:
    verdict = verdict_of(num_wrong)
    assert verdict.word == word
    shown = audit_result_html(job_of(result=result_of(verdict, [])))
    assert "data:image/svg+xml;base64," in shown
    # The picture has a ground and ink of its own; in dark mode both are turned.
    assert 'class="sp-picture"' in shown and ".dark .sp-picture { filter: invert(" in CSS
    assert f"{num_wrong} of {num_wrong} audited events unexplained" in shown
    assert "-5.0% [" in shown and "it decides nothing" in shown
    assert ("event rule" in shown) is bool(num_wrong)
    assert "&lt;b&gt;scorer" in shown and "<b>scorer" not in shown


def test_an_unavailable_audit_shows_its_cause() -> None:
    result = result_of(Verdict.unavailable("the stream was cut"), [])
    assert "audit unavailable: the stream was cut" in audit_result_html(job_of(result=result))


def test_no_result_and_one_of_another_version_are_shown() -> None:
    assert audit_result_html(job_of(state="running", ended_at=None)) == ""
    assert "another version" in audit_result_html(job_of(result={"passed": True, "message": "m"}))
