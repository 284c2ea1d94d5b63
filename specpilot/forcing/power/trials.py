"""What both rules say of resampled and simulated arms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.forcing.power.recorded import RecordedArm
from specpilot.forcing.rates import rate_test
from specpilot.forcing.rules import Rules
from specpilot.forcing.scores import ArmCounts
from specpilot.forcing.statistics import binomial_tail

__all__ = [
    "GPU_NOISE",
    "Noise",
    "Rejections",
    "detect",
    "false_rejections",
    "simulated_arm",
    "simulated_rejections",
]


@dataclass(frozen=True)
class Noise:
    """Near-ties of a stock engine on a GPU, which the CPU judge does not have.

    Attributes
    ----------
    rate
        Mismatches a token.
    spread
        Standard deviation of a request's own rate, over ``rate``: gamma distributed.
    large_rate
        Large-margin events a token.
    """

    rate: float
    spread: float
    large_rate: float


GPU_NOISE = Noise(0.0072, 1.0, 2e-5)
"""Rate quoted from the paper, section 3.3. Spread and large events are assumptions: a request's rate varies as much as
its mean, and one large event comes in 50,000 tokens."""


@dataclass(frozen=True)
class Rejections:
    """Shares of trials rejected: by either rule, by the rate rule, by the event rule."""

    either: float
    by_rate: float
    by_events: float


def detect(
    fault: RecordedArm,
    stock: RecordedArm,
    rules: Rules,
    num_tokens: int,
    num_trials: int,
    rng: np.random.Generator,
    noise: Noise | None = None,
) -> Rejections:
    """Both arms resampled, request by request in pairs, to ``num_tokens`` of stock.

    The fault answered stock's first prompts, or all of them.
    """
    share = 1.0 if fault.unexplained_share is None else fault.unexplained_share
    system_rows, stock_rows = fault.counts, stock.counts
    count = max(rules.min_requests, round(num_tokens / float(stock.rows[:, 0].mean())))
    hits = np.zeros((num_trials, 2), bool)
    for trial in range(num_trials):
        chosen = rng.integers(0, min(len(fault.rows), len(stock.rows)), count)
        system, other = system_rows.take(chosen), stock_rows.take(chosen)
        system = replace(system, large=rng.binomial(system.large, share))
        if noise is not None:
            system, other = _with_noise(system, other, noise, rng)
        hits[trial] = _rules(system, other, rules)
    return _shares(hits)


def false_rejections(
    system: RecordedArm,
    stock: RecordedArm,
    rules: Rules,
    num_tokens: int,
    num_trials: int,
    rng: np.random.Generator,
) -> Rejections:
    """Two lossless arms, each resampled by itself."""
    hits = np.zeros((num_trials, 2), bool)
    for trial in range(num_trials):
        arms = []
        for name, arm in (("a", system), ("b", stock)):
            count = max(rules.min_requests, round(num_tokens / float(arm.rows[:, 0].mean())))
            arms.append(arm.counts.take(rng.integers(0, len(arm.rows), count), name))
        hits[trial] = _rules(arms[0], arms[1], rules)
    return _shares(hits)


def simulated_arm(
    num_requests: int, mean_tokens: int, noise: Noise, rng: np.random.Generator, name: str
) -> ArmCounts:
    """Requests of exponential lengths with gamma distributed rates; large events are some of the mismatches."""
    tokens = 16 + rng.exponential(mean_tokens - 16, num_requests).astype(np.int64)
    shape = 1 / noise.spread**2
    own = rng.gamma(shape, 1 / shape, num_requests)
    mismatches = rng.binomial(tokens, np.minimum(1.0, noise.rate * own))
    large = rng.binomial(mismatches, min(1.0, noise.large_rate / noise.rate))
    return ArmCounts(tuple(f"{name}{i}" for i in range(num_requests)), tokens, mismatches, large)


def simulated_rejections(
    noise: Noise,
    rules: Rules,
    num_tokens: int,
    num_trials: int,
    rng: np.random.Generator,
    mean_tokens: int = 500,
) -> Rejections:
    """Stock against stock, both simulated; shorter answers where ``num_tokens`` has no room for enough requests."""
    mean_tokens = min(mean_tokens, num_tokens // rules.min_requests)
    count = num_tokens // mean_tokens
    hits = np.zeros((num_trials, 2), bool)
    for trial in range(num_trials):
        arms = [simulated_arm(count, mean_tokens, noise, rng, name) for name in "ab"]
        hits[trial] = _rules(arms[0], arms[1], rules)
    return _shares(hits)


def _with_noise(
    system: ArmCounts, stock: ArmCounts, noise: Noise, rng: np.random.Generator
) -> tuple[ArmCounts, ArmCounts]:
    """Near-ties on top of both; a request has the same rate in both arms."""
    shape = 1 / noise.spread**2
    own = rng.gamma(shape, 1 / shape, system.num_requests)
    noisy = []
    for arm in (system, stock):
        more = rng.binomial(arm.tokens, np.minimum(1.0, noise.rate * own))
        large = rng.binomial(more, noise.large_rate / noise.rate)
        noisy.append(
            replace(arm, mismatches=np.minimum(arm.tokens, arm.mismatches + more), large=arm.large + large)
        )
    return noisy[0], noisy[1]


def _rules(system: ArmCounts, stock: ArmCounts, rules: Rules) -> tuple[bool, bool]:
    rates = rate_test(system, stock, limit=rules.rate_limit, level=rules.rate_level)
    x, s = int((system.large > 0).sum()), int((stock.large > 0).sum())
    share = system.num_tokens / (system.num_tokens + stock.num_tokens)
    return rates.is_rejected, binomial_tail(x, x + s, share) < rules.event_level


def _shares(hits: NDArray[np.bool_]) -> Rejections:
    return Rejections(float(hits.any(1).mean()), float(hits[:, 0].mean()), float(hits[:, 1].mean()))
