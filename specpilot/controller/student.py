"""Student's t distribution for whole degrees of freedom, exactly, with the standard library."""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["t_cdf", "t_quantile"]


def t_cdf(value: float, dof: int) -> float:
    """P(T <= value). The finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    if dof < 1:
        raise ValueError(f"dof: got {dof}, expected at least 1")
    angle = math.atan2(value, math.sqrt(dof))
    sine, cosine = math.sin(angle), math.cos(angle)
    term = cosine if dof % 2 else 1.0
    total = 0.0 if dof == 1 else term
    for step in range(3 if dof % 2 else 2, dof - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    central = sine * total if dof % 2 == 0 else 2.0 / math.pi * (angle + sine * total)
    return 0.5 + 0.5 * central


@lru_cache(maxsize=4096)
def t_quantile(probability: float, dof: int) -> float:
    """The value that T exceeds with probability ``1 - probability``; 0.5 <= probability < 1."""
    if not 0.5 <= probability < 1.0:
        raise ValueError(f"probability: got {probability}, expected 0.5 <= probability < 1")
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < probability:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, dof) < probability else (low, middle)
    return high
