"""The noise of a measuring mode: what paired runs of a system against itself show."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.controller.stats import Gain, welch_dof
from specpilot.controller.student import t_quantile
from specpilot.errors import ConfigError

__all__ = ["MIN_NULL_TRIALS", "Noise", "bound_with_noise"]

MIN_NULL_TRIALS = 4
"""Fewer say nothing: with 4, the 97.5% bound already stands 2.8 noise units below the estimate."""


@dataclass(frozen=True)
class Noise:
    """What stock-versus-stock trials of the same mode, requests and number of paired runs gave, in log units.

    Attributes
    ----------
    null_gains
        Gain of each trial. The true value is known to be zero, so their root mean square estimates the noise with one
        degree of freedom a trial, and whatever favours a slot or a turn after the swap counts as noise too.
    null_gaps
        ``Gain.half_gap`` of each: what a slot or a turn is worth, before the swap cancels it.
    """

    null_gains: tuple[float, ...]
    null_gaps: tuple[float, ...]

    def __post_init__(self) -> None:
        num_gains, num_gaps = len(self.null_gains), len(self.null_gaps)
        if num_gains < MIN_NULL_TRIALS or num_gains != num_gaps:
            raise ConfigError(
                f"noise: got {num_gains} gains and {num_gaps} gaps of stock-versus-stock trials, expected as many of "
                f"both and at least {MIN_NULL_TRIALS}"
            )

    @classmethod
    def of_trials(cls, gains: Sequence[Gain]) -> Noise:
        return cls(tuple(one.log_gain for one in gains), tuple(one.half_gap for one in gains))

    @property
    def sd(self) -> float:
        return math.sqrt(sum(gain * gain for gain in self.null_gains) / len(self.null_gains))

    @property
    def dof(self) -> int:
        return len(self.null_gains)

    def gap_interval(self, alpha: float) -> tuple[float, float]:
        """Where ``half_gap`` of a steady trial lies with probability ``1 - alpha`` (prediction interval)."""
        count = len(self.null_gaps)
        middle = statistics.fmean(self.null_gaps)
        reach = t_quantile(1.0 - alpha / 2.0, count - 1) * math.sqrt(1.0 + 1.0 / count)
        reach *= statistics.stdev(self.null_gaps)
        return middle - reach, middle + reach


def bound_with_noise(gain: Gain, noises: Sequence[Noise], alpha: float) -> float:
    """Lower bound of a gain at one-sided level ``alpha``, log units, for a fresh trial of the same pair of systems.

    The variance is that over requests plus that of whole trials; the latter contains some of the former, which errs
    on the safe side. Degrees of freedom by Satterthwaite, so noise that was estimated from few trials costs.
    """
    variances = [gain.se**2, *(noise.sd**2 for noise in noises)]
    dof = welch_dof(variances, [gain.dof, *(noise.dof for noise in noises)])
    return gain.log_gain - t_quantile(1.0 - alpha, dof) * math.sqrt(sum(variances))
