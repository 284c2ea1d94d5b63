"""How often the rule errs: simulated rounds of changes that do nothing, and of changes that gain.

A simulated trial has what real ones have: requests of different speed-up, noise of a request within a run, noise
common to a whole run with heavy tails (Student's t, 4 degrees of freedom, scaled to the stated deviation), a slot that
is faster than the other (the swap cancels it), and a noise estimate that comes from a few stock-versus-stock trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.controller.noise import Noise
from specpilot.controller.promotion import CONFIRM_ALPHA, judge_speed
from specpilot.controller.spending import AlphaPlan
from specpilot.controller.stats import LogRatios, measure_gain

__all__ = [
    "BENCHMARKS",
    "Box",
    "Judge",
    "Trial",
    "judge_by_estimate",
    "judge_by_rule",
    "judge_once",
    "promotion_rate",
    "round_error_rate",
]

BENCHMARKS = ("gsm8k", "math500", "humaneval", "mbpp", "mt_bench")
_TAIL_DOF = 4

Trial = Callable[[], LogRatios]
"""Runs one more trial."""

Judge = Callable[[Trial, Noise, float], bool]


@dataclass(frozen=True)
class Box:
    """A machine to simulate. All deviations are in log units of a rate ratio.

    Attributes
    ----------
    run_sd
        Of what a whole run shares.
    request_sd
        Of one request within a run, beside the other arm.
    effect_sd
        Of the true gain from request to request; 0 for a change that does nothing.
    slot_bias
        By how much slot 0 is faster than slot 1.
    """

    run_sd: float
    request_sd: float = 0.02
    effect_sd: float = 0.0
    slot_bias: float = 0.005
    num_requests: int = 20
    num_runs: int = 2
    num_null_trials: int = 8

    def trial(self, log_gain: float, generator: np.random.Generator) -> LogRatios:
        """One trial of the five benchmarks at one batch size."""
        shared = generator.standard_t(_TAIL_DOF, self.num_runs) * self.run_sd
        shared /= math.sqrt(_TAIL_DOF / (_TAIL_DOF - 2))
        swapped = np.where(np.arange(self.num_runs) % 2, -1.0, 1.0) * self.slot_bias
        ratios = {}
        for benchmark in BENCHMARKS:
            effects = generator.normal(
                log_gain, self.effect_sd if log_gain else 0.0, (self.num_requests, 1, 1)
            )
            noise = generator.normal(0.0, self.request_sd, (self.num_requests, 1, self.num_runs))
            values: NDArray[np.float64] = effects + noise + shared + swapped
            ratios[benchmark] = values
        return ratios

    def calibrate(self, generator: np.random.Generator) -> Noise:
        trials = (self.trial(0.0, generator) for _ in range(self.num_null_trials))
        return Noise.of_trials([measure_gain(trial, [1]) for trial in trials])


def judge_by_rule(trial: Trial, noise: Noise, alpha: float) -> bool:
    """The controller's rule with its repetition, for outputs that are equal; without the bootstrap."""
    return all(
        judge_speed(trial(), [1], noise, alpha=level, has_diverged=False, num_draws=0).is_accepted
        for level in (alpha, CONFIRM_ALPHA)
    )


def judge_once(trial: Trial, noise: Noise, alpha: float) -> bool:
    """The rule without its repetition."""
    return judge_speed(trial(), [1], noise, alpha=alpha, has_diverged=False, num_draws=0).is_accepted


def judge_by_estimate(trial: Trial, noise: Noise, alpha: float) -> bool:
    """What most loops do: keep whatever measured faster. The negative control of these simulations."""
    return measure_gain(trial(), [1]).log_gain > 0.0


def promotion_rate(
    box: Box,
    gain: float,
    generator: np.random.Generator,
    *,
    num_trials: int = 400,
    judge: Judge = judge_by_rule,
) -> float:
    """Share of first attempts promoted when the true gain is ``gain`` (a ratio); noise is estimated anew each time."""
    level, log_gain = AlphaPlan().level(1), math.log(gain)
    hits = sum(
        judge(lambda: box.trial(log_gain, generator), box.calibrate(generator), level)
        for _ in range(num_trials)
    )
    return hits / num_trials


def round_error_rate(
    box: Box,
    generator: np.random.Generator,
    *,
    plan: AlphaPlan | None = None,
    num_rounds: int = 200,
    judge: Judge = judge_by_rule,
) -> float:
    """Share of rounds in which any null change is promoted: every direction uses all its attempts, one calibration."""
    plan = plan or AlphaPlan()
    num_wrong = 0
    for _ in range(num_rounds):
        noise = box.calibrate(generator)
        num_wrong += any(
            judge(lambda: box.trial(0.0, generator), noise, plan.level(attempt))
            for _ in range(plan.num_directions)
            for attempt in range(1, plan.num_attempts + 1)
        )
    return num_wrong / num_rounds
