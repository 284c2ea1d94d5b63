"""Verdicts as the paper's figure 4 draws them: mismatch rates with intervals, the limit, and accuracy beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specpilot.forcing.report.canvas import Canvas
from specpilot.forcing.verdict import Verdict

__all__ = ["verdict_picture"]

_COLOURS = {True: "#2a9d5c", False: "#d1495b", None: "#9aa1ab"}
_STOCK = "#7a8aa0"
_LEFT, _TOP, _LOW, _STEP, _BAR = 70, 90, 360, 150, 46


def verdict_picture(verdicts: Mapping[str, Verdict]) -> Canvas:
    """One group of bars a system: stock, and the system; above them the verdict and its large-margin events.

    On the right the change of task accuracy with its interval, where it was measured. Unavailable ones have no bars.
    """
    named = list(verdicts.items())
    has_accuracy = any(verdict.accuracy for verdict in verdicts.values())
    rates_width = max(430, _LEFT + _STEP * len(named) + 30)
    accuracy_width = 340 if has_accuracy else 0
    canvas = Canvas(rates_width + accuracy_width, 430)
    canvas.text(16, 26, "Token forcing: mismatch rate (95% intervals) and verdict", 15)
    tops = [
        max(
            v.intervals["system"]["high"],
            v.intervals["stock"]["high"],
            v.intervals["stock"]["rate"] + v.limits["rate"],
        )
        for _, v in named
        if v.intervals
    ]
    top = 1.1 * max(tops, default=0.01)

    def y(rate: float) -> float:
        return _LOW - (_LOW - _TOP - 30) * min(rate, top) / top

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        rate = top * share
        canvas.line([(_LEFT, y(rate)), (rates_width - 20, y(rate))], "#e5e5e5")
        canvas.text(_LEFT - 8, y(rate) + 4, f"{rate:.2%}", 11, "end")
    for number, (name, verdict) in enumerate(named):
        left = _LEFT + 16 + number * _STEP
        centre = left + _BAR + 4
        canvas.text(centre, _TOP - 22, verdict.word, 13, "middle", _COLOURS[verdict.passed])
        canvas.text(centre, _LOW + 36, name[:22], 12, "middle")
        if not verdict.intervals:
            continue
        counts = verdict.counts["system"]
        events = f"{counts['unexplained_events']} of {counts['audited_events']} events"
        canvas.text(centre, _TOP - 6, events, 11, "middle", "#555555")
        for place, arm, colour in ((0, "stock", _STOCK), (1, "system", _COLOURS[verdict.passed])):
            x, interval = left + place * (_BAR + 8), verdict.intervals[arm]
            canvas.box(x, y(interval["rate"]), _BAR, _LOW - y(interval["rate"]), colour)
            middle = x + _BAR / 2
            _whisker(canvas, middle, y(interval["low"]), y(interval["high"]))
            canvas.text(middle, _LOW + 16, arm, 11, "middle", "#555555")
        limit = verdict.intervals["stock"]["rate"] + verdict.limits["rate"]
        canvas.line([(left - 6, y(limit)), (left + 2 * _BAR + 14, y(limit))], "black", 1, dash=True)
    canvas.text(
        16,
        418,
        "dashed: the rate rule's limit, stock's rate and what is allowed above it",
        11,
        colour="#555555",
    )
    if has_accuracy:
        _accuracy(canvas, rates_width + 20, named)
    return canvas


def _whisker(canvas: Canvas, x: float, low: float, high: float) -> None:
    canvas.line([(x, low), (x, high)])
    for end in (low, high):
        canvas.line([(x - 5, end), (x + 5, end)])


def _accuracy(canvas: Canvas, left: float, named: Sequence[tuple[str, Verdict]]) -> None:
    measured = [(name, v.accuracy) for name, v in named if v.accuracy]
    width = 300.0
    most: float = max(0.02, *(abs(a[end]) for _, a in measured if a for end in ("low", "high")))
    zero = left + width / 2

    def x(change: float) -> float:
        return zero + width / 2 * float(change) / most

    canvas.text(left, 26, "Change of task accuracy (95%)", 15)
    canvas.line([(zero, _TOP), (zero, _LOW)], "black", 1, dash=True)
    for number, (name, change) in enumerate(measured):
        if change is None:
            continue
        at = _TOP + 30 + number * 40
        canvas.text(left, at - 10, f"{name[:28]}: {100 * change['change']:+.1f} points", 11)
        canvas.line([(x(change["low"]), at), (x(change["high"]), at)], "#1f6fd6", 2)
        canvas.box(x(change["change"]) - 3, at - 3, 6, 6, "#1f6fd6")
    for mark in (-most, 0.0, most):
        canvas.text(x(mark), _LOW + 16, f"{100 * mark:+.1f}", 11, "middle")
    canvas.text(zero, _LOW + 36, "points, against stock", 12, "middle")
