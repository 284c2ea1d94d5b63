"""The distributions that the two rules need, without a scientific package."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

__all__ = ["binomial_tail", "student_quantile", "wilson_interval"]


def binomial_tail(count: int, trials: int, share: float) -> float:
    """P(X >= count) of X ~ Bin(trials, share), exact up to rounding; 0 < share < 1."""
    if count <= 0:
        return 1.0
    log_p, log_q = math.log(share), math.log1p(-share)
    whole = math.lgamma(trials + 1)
    terms = (
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * log_p + (trials - k) * log_q)
        for k in range(count, trials + 1)
    )
    return min(1.0, math.fsum(terms))


def wilson_interval(count: float, trials: float, z: float) -> tuple[float, float]:
    """Wilson's score interval of a share, z standard deviations wide to either side."""
    share, square = count / trials, z * z
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    half = (
        z * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials)) / (1 + square / trials)
    )
    return max(0.0, centre - half), min(1.0, centre + half)


@functools.lru_cache(maxsize=4096)
def student_quantile(share: float, freedom: float) -> float:
    """Quantile of Student's t, 0.5 <= share < 1, freedom >= 1; by bisection of the distribution function."""
    low, high = 0.0, 8.0 * NormalDist().inv_cdf(share) + 1.0
    while _student_cdf(high, freedom) < share:
        high *= 4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _student_cdf(t: float, freedom: float) -> float:
    """For t >= 0: one less half the incomplete beta I_x(freedom / 2, 1 / 2), x = freedom / (freedom + t^2)."""
    x = freedom / (freedom + t * t)
    return 1.0 - _incomplete_beta(freedom / 2, 0.5, x) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Lentz's continued fraction (Numerical Recipes, 6.4), on the side where it converges fast."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 500):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + factor * d or tiny)
            c = 1.0 + factor / c or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return front * value / a
