"""A verdict as a page: HTML with the picture inside, the same picture as PNG, and the verdict as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from specpilot.errors import ConfigError, Unsupported
from specpilot.forcing.events import Event
from specpilot.forcing.report.verdict_picture import verdict_picture
from specpilot.forcing.verdict import Verdict

__all__ = ["Texts", "verdict_page", "write_report"]

_MOST_EVENTS = 200
_STYLE = (
    "body{font-family:sans-serif;margin:24px;max-width:1100px}table{border-collapse:collapse;font-size:13px}"
    "td,th{border:1px solid #ccc;padding:3px 7px;text-align:left;vertical-align:top}code{white-space:pre-wrap}"
)

Texts = Callable[[Sequence[int]], str]
"""Token ids as text."""


def write_report(folder: Path, verdicts: Mapping[str, Verdict], texts: Texts | None = None) -> list[Path]:
    """Write ``report.html``, ``verdict.json`` (one object a name) and, where Pillow is installed, ``report.png``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page, data = folder / "report.html", folder / "verdict.json"
        page.write_text(verdict_page(verdicts, texts), encoding="utf-8")
        documents = {name: verdict.to_json() for name, verdict in verdicts.items()}
        data.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"report: cannot write to {folder}: {error.strerror}") from None
    written = [page, data]
    try:
        verdict_picture(verdicts).write_png(folder / "report.png")
        written.append(folder / "report.png")
    except Unsupported:
        pass  # The page has the picture; a PNG is an extra that the extra brings.
    return written


def verdict_page(verdicts: Mapping[str, Verdict], texts: Texts | None = None) -> str:
    """Self-contained HTML. ``texts`` turns token ids into text; None shows ids."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Token forcing</title>",
        f"<style>{_STYLE}</style><h1>Token forcing</h1>",
        verdict_picture(verdicts).svg(),
    ]
    for name, verdict in verdicts.items():
        parts += _section(name, verdict, texts)
    return "\n".join([*parts, "</html>\n"])


def _section(name: str, verdict: Verdict, texts: Texts | None) -> list[str]:
    parts = [f"<h2>{escape(name)}: {verdict.word}</h2>"]
    for line in (*verdict.reasons, *verdict.notes):
        parts.append(f"<p>{escape(line)}</p>")
    if not verdict.intervals:
        return parts
    difference, limits = verdict.intervals["difference"], verdict.limits
    rows = [
        ("", "requests", "tokens", "mismatches", "rate [95%]", "large-margin events"),
        *(
            (
                arm,
                str(verdict.counts[arm]["requests"]),
                f"{verdict.counts[arm]['tokens']:,}",
                str(verdict.counts[arm]["mismatches"]),
                "{rate:.3%} [{low:.3%}, {high:.3%}]".format(**verdict.intervals[arm]),
                str(verdict.counts[arm]["large_events"]),
            )
            for arm in ("system", "stock")
        ),
    ]
    parts.append(_table(rows))
    counts = verdict.counts["system"]
    parts.append(
        f"<p>Rate rule: difference {difference['value']:+.3%}, at least {difference['lower']:+.3%}; limit "
        f"{limits['rate']:+.2%}. This audit finds a difference of {limits['detectable_rate']:.2%} with probability 0.8."
        "</p>"
        f"<p>Event rule: {counts['unexplained_events']} of {counts['audited_events']} audited events unexplained, in "
        f"{counts['unexplained_requests']} of {counts['audited_requests']} requests; stock has events in "
        f"{limits['stock_requests_with_events']}; p = {limits['event_p_value']:.2g}, level {limits['event_level']}. It "
        f"rejects from {limits['detectable_requests']} requests on.</p>"
    )
    if verdict.accuracy:
        parts.append(
            "<p>Task accuracy, which decides nothing: {change:+.1%} [{low:+.1%}, {high:+.1%}] over {num_items} graded "
            "answers.</p>".format(**verdict.accuracy)
        )
    if verdict.events:
        parts.append(f"<h3>Large-margin events{_first(len(verdict.events))}</h3>")
        head = ("request", "token", "context", "served", "scorer", "margin", "audit", "evidence")
        parts.append(_table([head, *(_event_row(event, texts) for event in verdict.events[:_MOST_EVENTS])]))
    return parts


def _first(count: int) -> str:
    return f", the first {_MOST_EVENTS} of {count}" if count > _MOST_EVENTS else ""


def _event_row(event: Event, texts: Texts | None) -> tuple[str, ...]:
    def show(ids: Sequence[int]) -> str:
        known = [token_id for token_id in ids if token_id >= 0]
        return repr(texts(known)) if texts is not None else " ".join(map(str, known))

    return (
        event.request_id,
        str(event.index),
        show(event.context_ids),
        show([event.token_id]),
        show([event.argmax_id]),
        f"{event.margin:.3f}",
        event.explanation or "not audited",
        json.dumps(event.evidence),
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in body:
        lines.append("<tr>" + "".join(f"<td><code>{escape(cell)}</code></td>" for cell in row) + "</tr>")
    return "\n".join([*lines, "</table>"])
