"""Quantiles of Student's t, remembered: the same few are asked for in every trial."""

from __future__ import annotations

from functools import lru_cache

from specpilot.forcing.statistics import student_quantile

__all__ = ["t_quantile"]


@lru_cache(maxsize=4096)
def t_quantile(probability: float, dof: int) -> float:
    """The value that T exceeds with probability ``1 - probability``; 0.5 <= probability < 1."""
    if not 0.5 <= probability < 1.0:
        raise ValueError(f"probability: got {probability}, expected 0.5 <= probability < 1")
    return student_quantile(probability, dof)
