"""Data to HTML. Every text is escaped here, and nowhere else is HTML made from data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from specpilot_console.client import ApiError

__all__ = [
    "Markup",
    "badge",
    "badges",
    "cards",
    "facts",
    "heading",
    "log_text",
    "note",
    "problem",
    "show",
    "steps",
    "table",
    "when",
]

_TONES = {
    "good": {"applied", "ready", "passed", "runnable", "current", "closed", "ok", "intact", "succeeded"},
    "bad": {"failed", "rolled_back", "rejected", "open", "revoked", "broken", "wrong GPU", "unreachable"},
    "busy": {
        "pending",
        "draining",
        "starting",
        "canary",
        "gating",
        "promoting",
        "rolling_back",
        "backing_off",
        "queued",
        "running",
        "paused",
    },
}


class Markup(str):
    """HTML that this module made; other text is escaped before it is shown."""


def _cell(value: Any) -> str:
    """Names, numbers and times stay on one line; sentences wrap."""
    if isinstance(value, Markup):
        return value
    text = show(value)
    is_sentence = " " in text and len(text) > 24
    return f'<span class="{"sp-text" if is_sentence else "sp-nowrap"}">{escape(text)}</span>'


def _html(value: Any) -> str:
    return value if isinstance(value, Markup) else escape(show(value))


def show(value: Any) -> str:
    """One value as people read it; a dash for nothing."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, datetime):
        return when(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value)) or "–"
    return str(value)


def when(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def badge(word: str, tone: str | None = None) -> Markup:
    found = tone or next((name for name, words in _TONES.items() if word in words), "plain")
    return Markup(f'<span class="sp-badge sp-{found}">{escape(word.replace("_", " "))}</span>')


def badges(*shown: Markup) -> Markup:
    """Several in one cell, which wrap without touching."""
    return Markup(f'<span class="sp-badges">{"".join(shown)}</span>')


def cards(items: Iterable[tuple[str, Any, Any]], is_wide: bool = False) -> Markup:
    """(title, value, small print) each as a card."""
    kind = "sp-cards sp-wide" if is_wide else "sp-cards"
    return Markup(f'<div class="{kind}">{"".join(_card(*item) for item in items)}</div>')


def _card(title: str, value: Any, small: Any) -> str:
    kind = "sp-value" if isinstance(value, Markup) or len(show(value)) <= 14 else "sp-value sp-long"
    return (
        f'<div class="sp-card"><div class="sp-title">{escape(title)}</div><div class="{kind}">{_html(value)}</div>'
        f'<div class="sp-small">{_html(small) if small else ""}</div></div>'
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "Nothing yet.") -> Markup:
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return note(empty)
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return Markup(f'<div class="sp-scroll"><table class="sp-table">{inside}</table></div>')


def facts(items: Iterable[tuple[str, Any]]) -> Markup:
    inside = "".join(f"<dt>{escape(name)}</dt><dd>{_html(value)}</dd>" for name, value in items)
    return Markup(f'<dl class="sp-facts">{inside}</dl>')


def heading(text: str) -> Markup:
    return Markup(f'<h3 class="sp-heading">{escape(text)}</h3>')


def note(text: str, tone: str = "plain") -> Markup:
    return Markup(f'<div class="sp-note sp-{tone}" role="status">{escape(text)}</div>')


def problem(error: ApiError) -> Markup:
    """What was refused and why; a part that the build lacks is said to be unavailable, not broken."""
    word = "unavailable" if error.is_unavailable else error.code
    tone = "plain" if error.is_unavailable else "bad"
    return Markup(
        f'<div class="sp-note sp-{tone}" role="status">{badge(word, tone)} {escape(str(error))}</div>'
    )


def steps(names: Sequence[str], reached: Sequence[str], current: str, tone: str) -> Markup:
    """A row of stations: those reached, the one we are at, those to come."""
    shown = []
    for name in names:
        kind = f"sp-at sp-{tone}" if name == current else "sp-done" if name in reached else "sp-ahead"
        shown.append(f'<li class="{kind}">{escape(name.replace("_", " "))}</li>')
    return Markup(f'<ol class="sp-steps">{"".join(shown)}</ol>')


def log_text(lines: Iterable[str]) -> Markup:
    return Markup(f'<pre class="sp-log">{escape(chr(10).join(lines))}</pre>')
