"""The rate rule: is the mismatch rate above stock's by more than the limit?

Tokens of one request are not independent, so the standard error is that of a ratio of sums over requests (linearised,
with Student's t), of the difference request by request where both systems answered the same requests. Where few
mismatches fell, that error is itself a guess; the bound is therefore never above Newcombe's, which counts tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from specpilot.forcing.scores import ArmCounts
from specpilot.forcing.statistics import student_quantile, wilson_interval

__all__ = ["RateTest", "rate_interval", "rate_test"]


@dataclass(frozen=True)
class RateTest:
    """Share of tokens, all of them.

    Attributes
    ----------
    difference
        Rate of the system less stock's.
    lower
        One-sided lower bound of it, at the rule's level.
    limit
        What ``lower`` must not exceed.
    detectable
        Smallest difference that this audit finds with probability 0.8, from its own standard error (computed).
    """

    difference: float
    lower: float
    limit: float
    detectable: float

    @property
    def is_rejected(self) -> bool:
        return self.lower > self.limit


def rate_interval(arm: ArmCounts, level: float = 0.05) -> tuple[float, float]:
    """Two-sided interval of an arm's mismatch rate: the wider of the clustered one and Wilson's on both sides."""
    z = NormalDist().inv_cdf(1 - level / 2)
    low, high = wilson_interval(float(arm.mismatches.sum()), arm.num_tokens, z)
    half = student_quantile(1 - level / 2, max(1, arm.num_requests - 1)) * math.sqrt(_variance(_parts(arm)))
    return max(0.0, min(low, arm.rate - half)), min(1.0, max(high, arm.rate + half))


def rate_test(system: ArmCounts, stock: ArmCounts, *, limit: float, level: float) -> RateTest:
    """Lower bound of the difference of rates against ``limit``."""
    difference = system.rate - stock.rate
    ours, theirs = _parts(system), _parts(stock)
    if system.request_ids == stock.request_ids:
        # Requests that are hard for one are hard for the other: the difference varies less than its parts.
        variance, freedom = _variance(ours - theirs), float(system.num_requests - 1)
    else:
        a, b = _variance(ours), _variance(theirs)
        variance = a + b
        # Rounded down: wider, and the same quantile again and again in simulations.
        freedom = float(math.floor(_welch(a, system.num_requests, b, stock.num_requests)))
    error = math.sqrt(variance)
    clustered = difference - student_quantile(1 - level, max(1.0, freedom)) * error
    z = NormalDist().inv_cdf(1 - level)
    low, _ = wilson_interval(float(system.mismatches.sum()), system.num_tokens, z)
    _, high = wilson_interval(float(stock.mismatches.sum()), stock.num_tokens, z)
    by_token = difference - math.hypot(system.rate - low, high - stock.rate)
    lower = min(clustered, by_token)
    # Where nothing mismatched there is no error to go by; the distance to the bound says as much.
    spread = max(error, (difference - lower) / z)
    return RateTest(difference, lower, limit, limit + (z + NormalDist().inv_cdf(0.8)) * spread)


def _parts(arm: ArmCounts) -> NDArray[np.float64]:
    """What each request adds to the error of the rate; they sum to 0."""
    return np.asarray((arm.mismatches - arm.rate * arm.tokens) / arm.num_tokens, np.float64)


def _variance(parts: NDArray[np.float64]) -> float:
    count = len(parts)
    return 0.0 if count < 2 else float(np.square(parts).sum()) * count / (count - 1)


def _welch(a: float, num_a: int, b: float, num_b: int) -> float:
    if a + b == 0:
        return float(num_a + num_b - 2)
    return (a + b) ** 2 / (a * a / max(1, num_a - 1) + b * b / max(1, num_b - 1))
