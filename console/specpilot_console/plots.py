"""Figures. Backgrounds are transparent and ink is a grey that reads on light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

__all__ = ["answers_plot", "speed_plot"]

_INK, _GRID = "#8a8f98", "rgba(138,143,152,0.25)"
_BLUE, _ORANGE = "#3b82f6", "#f59e0b"


def _blank(height: int) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template=None,
        height=height,
        margin={"l": 60, "r": 60, "t": 34, "b": 36},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK, "size": 12},
        legend={"orientation": "h", "y": 1.16, "x": 1, "xanchor": "right"},
        hovermode="x unified",
    )
    figure.update_xaxes(gridcolor=_GRID, zeroline=False, linecolor=_GRID)
    figure.update_yaxes(gridcolor=_GRID, zeroline=False, linecolor=_GRID, rangemode="tozero")
    return figure


def speed_plot(points: Sequence[dict[str, Any]]) -> go.Figure:
    """Tokens/s (left axis) and accept length tau (right axis) over time."""
    figure = _blank(250)
    at = [point["at"] for point in points]
    for name, key, color, axis in (
        ("tokens/s", "tokens_per_s", _BLUE, "y"),
        ("accept length tau", "tau", _ORANGE, "y2"),
    ):
        figure.add_scatter(
            x=at,
            y=[point[key] for point in points],
            name=name,
            yaxis=axis,
            mode="lines+markers",
            line={"color": color, "width": 2},
            marker={"size": 4},
        )
    figure.update_layout(
        yaxis={"title": {"text": "tokens/s"}},
        yaxis2={
            "title": {"text": "tau"},
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "rangemode": "tozero",
        },
    )
    figure.update_xaxes(type="date", tickformat="%H:%M:%S")
    return figure


def answers_plot(rates: Sequence[tuple[str, float | None]]) -> go.Figure:
    """Rate of each answer in tokens/s, prompt included, as bars."""
    figure = _blank(170)
    figure.add_bar(
        y=[name for name, _ in rates],
        x=[rate for _, rate in rates],
        orientation="h",
        marker={"color": [_INK, _BLUE][: len(rates)]},
        text=["" if rate is None else f"{rate:,.0f}" for _, rate in rates],
        textposition="auto",
    )
    figure.update_layout(showlegend=False, hovermode=False)
    figure.update_xaxes(title={"text": "tokens/s over the whole answer, prompt included"}, rangemode="tozero")
    return figure
