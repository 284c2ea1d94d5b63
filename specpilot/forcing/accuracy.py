"""Change of task accuracy against stock: it stands beside a verdict to show what it misses, and decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from specpilot.errors import ConfigError
from specpilot.forcing.statistics import student_quantile

__all__ = ["accuracy_change"]


def accuracy_change(system: Mapping[str, bool], stock: Mapping[str, bool]) -> dict[str, Any]:
    """``change``, ``low``, ``high`` (95%, paired by request, Student's t) as shares of ``num_items`` graded answers."""
    if set(system) != set(stock) or len(system) < 2:
        raise ConfigError(
            f"accuracy: got {len(system)} and {len(stock)} graded answers, expected the same two or more requests"
        )
    names = sorted(system)
    differences = np.array([float(system[name]) - float(stock[name]) for name in names])
    half = student_quantile(0.975, len(names) - 1) * float(differences.std(ddof=1)) / math.sqrt(len(names))
    change = float(differences.mean())
    return {
        "change": change,
        "low": max(-1.0, change - half),
        "high": min(1.0, change + half),
        "system": float(np.mean([system[name] for name in names])),
        "stock": float(np.mean([stock[name] for name in names])),
        "num_items": len(names),
    }
