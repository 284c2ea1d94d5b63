"""The rule that decides: a pure function of measured numbers, so that the ledger can be replayed.

Three conditions on a trial, all of them:

1. *the paper's*: the lower end of the 95% interval of the paired gain, clustered by request, is above 1% plus twice the
   stock-versus-stock noise, and above 3% too when outputs diverge. The lower of a closed form and a bootstrap counts;
2. *over the round*: the lower bound at this attempt's share of the round's 2.5% (``spending.py``), with the noise of
   whole trials in its variance, is above zero;
3. *steady*: the paired runs of the trial agree with each other as stock's do with itself.

A trial that meets them is repeated once, afresh, and the repetition must meet them too, at the level of a single test
(``CONFIRM_ALPHA``). The levels above assume normal noise whose size is known from a few trials; real machines have
rare bad runs, and the repetition makes those harmless (``simulation.py`` shows both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specpilot.controller.noise import Noise, bound_with_noise
from specpilot.controller.stats import LogRatios, bootstrap_bounds, measure_gain

__all__ = ["CONFIRM_ALPHA", "DIVERGED_FLOOR", "FLOOR", "NOISE_UNITS", "SpeedVerdict", "judge_speed"]

CONFIRM_ALPHA = 0.01
FLOOR = 0.01
DIVERGED_FLOOR = 0.03
NOISE_UNITS = 2.0
_ALPHA_95 = 0.025
_GAP_ALPHA = 0.002
_SEED = 20251102


@dataclass(frozen=True)
class SpeedVerdict:
    """What the rule found; gains are ratios.

    Attributes
    ----------
    gain, lower_95
        Estimate and the lower end of its 95% interval over requests.
    needed
        What ``lower_95`` must exceed.
    round_alpha, round_lower
        This attempt's level and its bound, which must exceed 1.
    reasons
        Empty exactly when the gain is accepted.
    """

    gain: float
    lower_95: float
    needed: float
    noise: float
    round_alpha: float
    round_lower: float
    by_run: tuple[float, ...]
    reasons: tuple[str, ...]

    @property
    def is_accepted(self) -> bool:
        return not self.reasons


def judge_speed(
    ratios: LogRatios,
    batch_sizes: Sequence[int],
    noise: Noise,
    *,
    alpha: float,
    has_diverged: bool,
    num_draws: int = 4000,
) -> SpeedVerdict:
    """Apply the rule to a trial.

    ``alpha`` is the attempt's level. With ``num_draws`` 0 the bootstrap is left out (simulations; only the closed form
    counts then, which can only promote more).
    """
    gain = measure_gain(ratios, batch_sizes)
    lower = gain.lower(_ALPHA_95)
    if num_draws:
        lower = min(lower, bootstrap_bounds(ratios, _ALPHA_95, np.random.default_rng(_SEED), num_draws)[0])
    needed = math.log1p(FLOOR) + NOISE_UNITS * noise.sd
    if has_diverged:
        needed = max(needed, math.log1p(DIVERGED_FLOOR))
    round_lower = bound_with_noise(gain, [noise], alpha)
    reasons = []
    if lower <= needed:
        reasons.append(
            f"speed: the 95% lower bound of the gain is {math.exp(lower):.4f} x, needed is more than "
            f"{math.exp(needed):.4f} x (noise {noise.sd:.2%}, outputs {'diverge' if has_diverged else 'equal'})"
        )
    if round_lower <= 0.0:
        reasons.append(
            f"retries: at this attempt's level {alpha:.2g} of the round the lower bound is "
            f"{math.exp(round_lower):.4f} x, needed is more than 1"
        )
    low, high = noise.gap_interval(_GAP_ALPHA)
    if not low <= gain.half_gap <= high:
        shown = ", ".join(f"{math.exp(value):.4f}" for value in gain.by_run)
        reasons.append(
            f"unsteady: paired runs gave {shown} x; the two orders differ by {gain.half_gap:.2%} where stock against "
            f"itself gives {low:.2%} to {high:.2%}"
        )
    return SpeedVerdict(
        gain=gain.ratio,
        lower_95=math.exp(lower),
        needed=math.exp(needed),
        noise=noise.sd,
        round_alpha=alpha,
        round_lower=math.exp(round_lower),
        by_run=tuple(math.exp(value) for value in gain.by_run),
        reasons=tuple(reasons),
    )
