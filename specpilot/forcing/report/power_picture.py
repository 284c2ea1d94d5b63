"""Detection against tokens, a line for each fault."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from specpilot.forcing.report.canvas import Canvas

__all__ = ["power_picture"]

_COLOURS = ("#1f6fd6", "#e8613c", "#2a9d5c", "#8a4fbf", "#b8860b", "#0f8a8a", "#c2185b", "#5d6b7a")
_LEFT, _RIGHT, _TOP, _BOTTOM, _PANEL = 60, 210, 60, 60, 520


def power_picture(table: Mapping[str, Any]) -> Canvas:
    """Two panels: logit bias by size, and the other faults; the dashed line is the largest false rejection."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in table["faults"]:
        lines[row["fault"]].append((row["tokens"], row["detection"]))
    biases = {name: line for name, line in lines.items() if name.startswith("bias")}
    others = {name: line for name, line in lines.items() if name not in biases}
    canvas = Canvas(2 * (_PANEL + _LEFT), 470)
    canvas.text(_LEFT, 24, "Probability that an audit rejects a faulty system", 15)
    made = table["recording"]
    canvas.text(
        _LEFT,
        42,
        f"{made['model']}, {made['scorer']}; resampled from real answers of each fault, "
        f"{table['num_trials']} trials a point. Dashed: largest false rejection, {table['false_rejection']:.1%}",
        11,
        colour="#555555",
    )
    for number, group in enumerate((biases, others)):
        _panel(canvas, number * (_PANEL + _LEFT) + _LEFT, group, table["false_rejection"])
    return canvas


def _panel(
    canvas: Canvas, left: float, lines: Mapping[str, list[tuple[int, float]]], false_rejection: float
) -> None:
    right, low = left + _PANEL - _RIGHT, canvas.height - _BOTTOM
    tokens = sorted({count for line in lines.values() for count, _ in line})
    if not tokens:
        return
    span = math.log(tokens[-1] / tokens[0]) or 1.0

    def x(count: float) -> float:
        return left + (right - left) * math.log(count / tokens[0]) / span

    def y(share: float) -> float:
        return low - (low - _TOP - 10) * share

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        canvas.line([(left, y(share)), (right, y(share))], "#e5e5e5")
        canvas.text(left - 8, y(share) + 4, f"{share:.0%}", 11, "end")
    for count in tokens:
        canvas.text(x(count), low + 18, f"{count // 1000}k", 11, "middle")
    canvas.text((left + right) / 2, low + 38, "tokens audited, log scale", 12, "middle")
    canvas.line([(left, y(false_rejection)), (right, y(false_rejection))], "#999999", 1, dash=True)
    ends = []
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(x(count), y(share)) for count, share in sorted(line)]
        canvas.line(places, colour, 2, dash=number >= len(_COLOURS))
        ends.append((places[-1][1], name, colour))
    ends.sort()
    places_of = [end + 4 for end, _, _ in ends]
    for i in range(1, len(places_of)):
        places_of[i] = max(places_of[i], places_of[i - 1] + 15)
    # Down from the first label, then up again from the axis: labels keep their distance and stay inside.
    places_of[-1] = min(places_of[-1], low + 4.0)
    for i in reversed(range(len(places_of) - 1)):
        places_of[i] = min(places_of[i], places_of[i + 1] - 15)
    for (end, name, colour), at in zip(ends, places_of, strict=True):
        canvas.line([(right, end), (right + 12, at - 4)], colour)
        canvas.text(right + 16, at, name, 11, colour=colour)
