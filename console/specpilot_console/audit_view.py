"""How an audit is shown: rates with intervals against the limit, both rules, accuracy beside them, and the events."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from pydantic import ValidationError

from specpilot_console.markup import Markup, facts, heading, note, table
from specpilot_service.schemas.admin_audits import AuditResult
from specpilot_service.schemas.admin_jobs import JobView

__all__ = ["audit_result_html"]


def audit_result_html(job: JobView) -> Markup:
    """The result of a job of the kind audit; nothing while it has none."""
    if job.result is None:
        return Markup("")
    try:
        return _result_html(AuditResult.model_validate(job.result))
    except ValidationError:
        return note("Its result is of another version and shown as its message alone.")


def _result_html(result: AuditResult) -> Markup:
    verdict = result.verdict
    parts = []
    if verdict["intervals"]:
        # As an image: whatever the text inside says, nothing of it can run.
        picture = base64.b64encode(result.picture.encode()).decode()
        parts.append(
            Markup(
                f'<img alt="{escape(result.message)}" class="sp-picture" '
                f'src="data:image/svg+xml;base64,{picture}">'
            )
        )
        parts += [_rates(verdict), _rules(verdict)]
    parts += [note(line, "bad" if verdict["passed"] is False else "plain") for line in verdict["reasons"]]
    parts += [note(line) for line in verdict["notes"]]
    parts.append(_events(verdict, result.num_events))
    return Markup("".join(parts))


def _rates(verdict: Mapping[str, Any]) -> Markup:
    rows = []
    for arm in ("system", "stock"):
        counts, interval = verdict["counts"][arm], verdict["intervals"][arm]
        rows.append(
            (
                arm,
                f"{counts['requests']:,}",
                f"{counts['tokens']:,}",
                f"{counts['mismatches']:,}",
                f"{interval['rate']:.3%} [{interval['low']:.3%}, {interval['high']:.3%}]",
                f"{counts['large_events']:,}",
            )
        )
    columns = ["", "Requests", "Tokens", "Mismatches", "Rate [95%]", "Large-margin events"]
    return table(columns, rows, "")


def _rules(verdict: Mapping[str, Any]) -> Markup:
    counts, limits, change = verdict["counts"]["system"], verdict["limits"], verdict["accuracy"]
    difference = verdict["intervals"]["difference"]
    rows: list[tuple[str, Any]] = [
        (
            "Rate rule",
            f"difference {difference['value']:+.3%}, at least {difference['lower']:+.3%}; limit {limits['rate']:+.2%}",
        ),
        (
            "Event rule",
            f"{counts['unexplained_events']} of {counts['audited_events']} audited events unexplained, in "
            f"{counts['unexplained_requests']} requests; p = {limits['event_p_value']:.2g}, level "
            f"{limits['event_level']}",
        ),
        (
            "Would be found",
            f"a difference of {limits['detectable_rate']:.2%} (probability 0.8), or unexplained events in "
            f"{limits['detectable_requests']} requests",
        ),
        ("Scorer", verdict["scorer"]["name"]),
    ]
    if change is not None:
        text = f"{change['change']:+.1%} [{change['low']:+.1%}, {change['high']:+.1%}]"
        text += f" over {change['num_items']} answers; it decides nothing"
        rows.append(("Task accuracy", text))
    return facts(rows)


def _events(verdict: Mapping[str, Any], num_events: int) -> Markup:
    rows = [
        (
            event["request_id"],
            event["index"],
            event["token_id"],
            event["argmax_id"],
            f"{event['margin']:.3f}",
            event["explanation"] or "not audited",
        )
        for event in verdict["events"]
    ]
    shown = f", the first {len(rows)} of {num_events:,}" if num_events > len(rows) else ""
    columns = ["Request", "Token", "Served id", "Scorer's id", "Margin, nats", "Audit"]
    return Markup(heading(f"Large-margin events{shown}") + table(columns, rows, "None."))
