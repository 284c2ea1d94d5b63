"""One drawing, two files: SVG as text, PNG where Pillow is installed (the console brings it)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from specpilot.errors import Unsupported

__all__ = ["Canvas"]


@dataclass
class Canvas:
    """Shapes in the order they are drawn; pixels from the upper left corner."""

    width: int
    height: int
    _shapes: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def line(
        self, points: list[tuple[float, float]], colour: str = "black", width: int = 1, dash: bool = False
    ) -> None:
        self._shapes.append(("line", (points, colour, width, dash)))

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._shapes.append(("box", (x, y, width, height, colour)))

    def text(
        self, x: float, y: float, text: str, size: int = 12, anchor: str = "start", colour: str = "black"
    ) -> None:
        """``anchor`` is start, middle or end; y is the base line."""
        self._shapes.append(("text", (x, y, text, size, anchor, colour)))

    def svg(self) -> str:
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
        ]
        for kind, values in self._shapes:
            if kind == "line":
                points, colour, width, dash = values
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                dashes = ' stroke-dasharray="6 4"' if dash else ""
                parts.append(
                    f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'
                )
            elif kind == "box":
                x, y, width, height, colour = values
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
                )
            else:
                x, y, text, size, anchor, colour = values
                parts.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
                    f"{escape(text)}</text>"
                )
        return "\n".join([*parts, "</svg>\n"])

    def write_png(self, path: Path, scale: int = 2) -> None:
        """Unsupported where Pillow is not installed."""
        try:
            from PIL import Image, ImageDraw, ImageFont
        except ImportError:
            raise Unsupported(
                f"{path}: a PNG needs Pillow, which the extra 'console' installs; the SVG needs nothing"
            ) from None
        image = Image.new("RGB", (self.width * scale, self.height * scale), "white")
        draw = ImageDraw.Draw(image)
        for kind, values in self._shapes:
            if kind == "line":
                points, colour, width, dash = values
                for piece in _dashes(points) if dash else [points]:
                    draw.line([(x * scale, y * scale) for x, y in piece], colour, width * scale)
            elif kind == "box":
                x, y, width, height, colour = values
                draw.rectangle((x * scale, y * scale, (x + width) * scale, (y + height) * scale), fill=colour)
            else:
                x, y, text, size, anchor, colour = values
                font = ImageFont.load_default(size * scale)
                side = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
                draw.text((x * scale, y * scale), text, colour, font, anchor=side)
        image.save(path)


def _dashes(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    pieces = []
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length = max(1.0, ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5)
        for begin in range(0, int(length), 10):
            a, b = begin / length, min(1.0, (begin + 6) / length)
            pieces.append(
                [(x0 + a * (x1 - x0), y0 + a * (y1 - y0)), (x0 + b * (x1 - x0), y0 + b * (y1 - y0))]
            )
    return pieces
