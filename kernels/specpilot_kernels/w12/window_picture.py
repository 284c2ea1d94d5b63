"""Exponent windows of the encoded tensors as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.layout import WINDOW
from specpilot_kernels.w12.statistics import TensorStatistics

__all__ = ["window_picture"]

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 300, 30, 64, 52
_BIAS = 127
_LABEL_HEIGHT = 11
_MIN_SHARE = 1e-7
"""Shares from here to 1 have colours from pale to dark."""
_KEY_SHARES = (1e-6, 1e-4, 1e-2, 1.0)


def window_picture(tensors: Sequence[TensorStatistics], title: str) -> str:
    """An SVG document: a line for every encoded tensor, a cell for every binade.

    Cells are the darker the more of the tensor's numbers they hold. Two ticks bound the window of the middle row, the
    line through them reaches from the lowest window's first binade to the highest one's last. Zeros and denormals, Inf
    and NaN are not drawn: no binade is theirs.

    Parameters
    ----------
    tensors
        With ``exponents``; dense ones are left out.
    """
    shown = [tensor for tensor in tensors if len(tensor.exponents)]
    finite = np.zeros(256, np.int64)
    for tensor in shown:
        finite[1:255] += tensor.exponents[1:255]
    used = np.flatnonzero(finite)
    first, last = (int(used[0]), int(used[-1])) if len(used) else (_BIAS, _BIAS)
    for tensor in shown:
        low, high = tensor.base_range
        first, last = min(first, max(low, 1)), max(last, high + WINDOW - 1)
    height = min(14.0, max(4.0, 1600 / max(1, len(shown))))
    width = (_WIDTH - _LEFT - _RIGHT) / (last - first + 1)
    bottom = _TOP + height * len(shown)

    def x(exponent: float) -> float:
        return _LEFT + width * (exponent - first)

    parts = [_text(_LEFT, 20, title, weight="bold"), *_key()]
    label_step = max(1, math.ceil(_LABEL_HEIGHT / height))
    for row, tensor in enumerate(shown):
        top = _TOP + height * row
        parts += _cells(tensor.exponents, x, top, width, height)
        if row % label_step == 0:
            parts.append(_text(_LEFT - 8, top + max(height, 8) - 1, tensor.name, "end", size=10))
    for row, tensor in enumerate(shown):
        top = _TOP + height * row
        middle = int(np.median(tensor.bases))
        parts += [_tick(x(at), top, top + height, "#c2410c", 1.6) for at in (middle, middle + WINDOW)]
        y, (lowest, highest) = top + height / 2, tensor.base_range
        parts.append(
            f'<line x1="{x(lowest):.1f}" x2="{x(highest + WINDOW):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#c2410c" '
            'stroke-width="0.7"/>'
        )
    for exponent in range(first, last + 1):
        if (exponent - _BIAS) % 8 == 0:
            parts.append(_tick(x(exponent), bottom, bottom + 5, "black", 1.0))
            parts.append(_text(x(exponent), bottom + 18, str(exponent - _BIAS), "middle"))
    parts.append(
        _text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 38, "binade: magnitudes 2^n to 2^(n+1)", "middle")
    )
    body, total = "\n".join(parts), bottom + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{total:.0f}" '
        f'viewBox="0 0 {_WIDTH} {total:.0f}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _cells(
    exponents: NDArray[np.int64], x: Callable[[float], float], top: float, width: float, height: float
) -> list[str]:
    total = int(exponents.sum())
    return [
        f'<rect x="{x(exponent):.1f}" y="{top:.1f}" width="{width:.2f}" height="{height:.2f}" '
        f'fill="{_colour(exponents[exponent] / total)}"/>'
        for exponent in range(1, 255)
        if exponents[exponent]
    ]


def _colour(share: float) -> str:
    """Pale to dark blue, by the logarithm."""
    depth = min(1.0, max(0.0, 1 - math.log(max(share, _MIN_SHARE)) / math.log(_MIN_SHARE)))
    red, green, blue = (round(a + (b - a) * depth) for a, b in ((226, 12), (236, 52), (250, 120)))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _key() -> list[str]:
    parts = [_text(_LEFT, 46, "share of numbers:")]
    for index, share in enumerate(_KEY_SHARES):
        at = _LEFT + 130 + 72 * index
        parts.append(f'<rect x="{at}" y="36" width="16" height="12" fill="{_colour(share)}"/>')
        parts.append(_text(at + 20, 46, f"{share:g}"))
    at = _LEFT + 130 + 72 * len(_KEY_SHARES)
    parts += [_tick(at + offset, 36, 48, "#c2410c", 1.6) for offset in (0, 24)]
    parts.append(_text(at + 30, 46, "window of the middle row"))
    return parts


def _tick(x: float, top: float, bottom: float, colour: str, width: float) -> str:
    places = f'x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"'
    return f'<line {places} stroke="{colour}" stroke-width="{width}"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, weight: str = "normal", size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
