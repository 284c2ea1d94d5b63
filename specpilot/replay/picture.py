"""Tau against N as an SVG picture: a line for each builder, the oracle above them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape

from specpilot.replay.selection import ReplayRow

__all__ = ["tau_picture"]

_Scale = Callable[[float], float]

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 34, 48
_COLOURS = ("#1f6fd6", "#e8613c", "#2a9d5c", "#8a4fbf", "#b8860b", "#0f8a8a")
_ORACLE_COLOUR = "#9aa1ab"


def tau_picture(rows: Sequence[ReplayRow], title: str) -> str:
    """An SVG document, 640 x 400. N is on a linear axis, tau begins at 1 (the bonus token alone)."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        if row.tau is not None:
            lines[row.builder].append((row.nodes, row.tau))
    points = [point for line in lines.values() for point in line]
    last_n = max((n for n, _ in points), default=1)
    top = float(int(max((tau for _, tau in points), default=1.0)) + 1)

    def x(nodes: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * nodes / last_n

    def y(tau: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (tau - 1.0) / (top - 1.0)

    parts = [_text(_LEFT, 20, title, "start", "bold"), *_axes(x, y, sorted({n for n, _ in points}), top)]
    num_builders = 0
    for index, (name, line) in enumerate(lines.items()):
        colour, dashes = _ORACLE_COLOUR, ' stroke-dasharray="5 4"'
        if name != "oracle":
            colour, dashes = _COLOURS[num_builders % len(_COLOURS)], ""
            num_builders += 1
        places = [(x(n), y(tau)) for n, tau in sorted(line)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
        at = _TOP + 18 * index + 8
        left = _WIDTH - _RIGHT + 14
        parts.append(
            f'<line x1="{left}" y1="{at}" x2="{left + 22}" y2="{at}" stroke="{colour}" stroke-width="2"{dashes}/>'
        )
        parts.append(_text(left + 28, at + 4, name, "start"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _axes(x: _Scale, y: _Scale, marks: Sequence[int], top: float) -> list[str]:
    right, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [
        f'<line x1="{_LEFT}" y1="{low}" x2="{right}" y2="{low}" stroke="black"/>',
        f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{low}" stroke="black"/>',
        _text((_LEFT + right) / 2, _HEIGHT - 12, "N, verified rows of a step, root included", "middle"),
        _text(_LEFT - 40, _TOP - 6, "tau", "start"),
    ]
    for n in marks:
        parts.append(_text(x(n), low + 18, str(n), "middle"))
    for tau in range(1, int(top) + 1):
        parts.append(
            f'<line x1="{_LEFT}" y1="{y(tau):.1f}" x2="{right}" y2="{y(tau):.1f}" stroke="#e5e5e5"/>'
        )
        parts.append(_text(_LEFT - 8, y(tau) + 4, str(tau), "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
    )
