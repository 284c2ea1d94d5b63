"""Gains and intervals: against hand-made numbers, the closed form against the bootstrap, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specpilot.controller.noise import Noise, bound_with_noise
from specpilot.controller.promotion import judge_speed
from specpilot.controller.simulation import Box
from specpilot.controller.spending import AlphaPlan
from specpilot.controller.stats import RatePair, bootstrap_bounds, log_ratios, measure_gain
from specpilot.controller.student import t_quantile
from specpilot.errors import ConfigError


def pairs(ratio: float = 2.0) -> list[RatePair]:
    return [
        RatePair(name, size, f"{name}/{index}", run, ratio * (1 + index) * 10, (1 + index) * 10)
        for name in ("a", "b")
        for size in (1, 8)
        for index in range(3)
        for run in (0, 1)
    ]


def test_quantiles_of_t() -> None:
    # Tables of the t distribution, 97.5% and 99.9%.
    assert [round(t_quantile(0.975, dof), 3) for dof in (1, 2, 4, 9, 30)] == [
        12.706,
        4.303,
        2.776,
        2.262,
        2.042,
    ]
    assert round(t_quantile(0.999, 10), 3) == 4.144


def test_cells_have_equal_weight() -> None:
    # Benchmark a gains 4 x with ten requests, b nothing with two: the combined gain is their geometric mean.
    rows = [RatePair("a", 1, f"a/{n}", 0, 4.0, 1.0) for n in range(10)]
    rows += [RatePair("b", 1, f"b/{n}", 0, 1.0, 1.0) for n in range(2)]
    gain = measure_gain(*log_ratios(rows))
    assert gain.ratio == pytest.approx(2.0)
    assert gain.cells == {("a", 1): pytest.approx(math.log(4)), ("b", 1): 0.0}
    assert gain.se == 0.0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pairs()[:-1], "every request at batch sizes"),
        ([*pairs(), pairs()[0]], "two values"),
        ([RatePair("a", 1, "a/0", 0, 0.0, 1.0)], "positive"),
        ([RatePair("a", 1, "a/0", 0, math.inf, 1.0)], "positive"),
        ([], "none"),
    ],
)
def test_incomplete_rates_are_refused(rows: list[RatePair], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        log_ratios(rows)


def test_one_request_has_no_interval() -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        measure_gain(*log_ratios([RatePair("a", 1, "a/0", 0, 2.0, 1.0)]))


def test_the_bootstrap_agrees_with_the_closed_form() -> None:
    generator = np.random.default_rng(5)
    ratios = Box(run_sd=0.0, slot_bias=0.0, effect_sd=0.05).trial(0.1, generator)
    gain = measure_gain(ratios, [1])
    low, high, se = bootstrap_bounds(ratios, 0.025, generator, 20_000)
    assert se == pytest.approx(gain.se, rel=0.03)
    assert low == pytest.approx(gain.lower(0.025), abs=0.15 * gain.se)
    assert high == pytest.approx(2 * gain.log_gain - gain.lower(0.025), abs=0.15 * gain.se)


def test_intervals_are_clustered_by_request() -> None:
    """Repeating each request in 8 more runs that share its effect must not shrink the interval."""
    generator = np.random.default_rng(6)
    effects = generator.normal(0.05, 0.1, (20, 1, 1))
    few, many = (
        {"a": np.repeat(effects, runs, axis=2), "b": np.repeat(effects, runs, axis=2)} for runs in (1, 8)
    )
    assert measure_gain(many, [1]).se == pytest.approx(measure_gain(few, [1]).se)


def test_the_95_bound_covers() -> None:
    generator = np.random.default_rng(7)
    box = Box(run_sd=0.0, slot_bias=0.0, effect_sd=0.05, num_requests=5)
    missed = sum(measure_gain(box.trial(0.05, generator), [1]).lower(0.025) > 0.05 for _ in range(2000))
    assert missed / 2000 == pytest.approx(0.025, abs=0.011)  # 3 sd of the simulation


def test_noise_widens_the_bound_and_few_trials_cost() -> None:
    gain = measure_gain(Box(run_sd=0.0).trial(0.05, np.random.default_rng(8)), [1])
    gaps = (0.001, -0.001)
    small, large = Noise((0.001,) * 8, gaps * 4), Noise((0.01,) * 8, gaps * 4)
    few = Noise((0.01,) * 4, gaps * 2)
    bounds = [bound_with_noise(gain, [noise], 1e-4) for noise in (small, large, few)]
    assert gain.lower(1e-4) > bounds[0] > bounds[1] > bounds[2]
    with pytest.raises(ConfigError, match="at least 4"):
        Noise((0.0,) * 3, (0.0,) * 3)


def test_a_rounds_levels_sum_to_its_budget() -> None:
    plan = AlphaPlan()
    levels = [plan.level(attempt) for attempt in range(1, 5)]
    assert sum(levels) * plan.num_directions == pytest.approx(plan.alpha)
    assert levels == sorted(levels, reverse=True)
    with pytest.raises(ConfigError, match="at most 4"):
        plan.level(5)


@pytest.mark.parametrize(
    ("log_gain", "has_diverged", "word"),
    [
        (0.05, False, None),
        (0.025, False, None),
        (0.005, False, "speed retries"),
        (0.025, True, "speed"),
        (0.05, True, None),
    ],
)
def test_the_rule(log_gain: float, has_diverged: bool, word: str | None) -> None:
    generator = np.random.default_rng(9)
    box = Box(run_sd=0.0005)
    noise = box.calibrate(generator)
    verdict = judge_speed(box.trial(log_gain, generator), [1], noise, alpha=1e-4, has_diverged=has_diverged)
    assert [reason.split(":")[0] for reason in verdict.reasons] == (word or "").split()
    again = judge_speed(box.trial(log_gain, generator), [1], noise, alpha=1e-4, has_diverged=has_diverged)
    assert again.is_accepted == verdict.is_accepted


def test_runs_that_disagree_are_refused_and_a_fast_slot_is_not() -> None:
    generator = np.random.default_rng(10)
    box = Box(run_sd=0.0005, slot_bias=0.02)
    noise = box.calibrate(generator)
    steady = box.trial(0.1, generator)
    assert judge_speed(steady, [1], noise, alpha=1e-4, has_diverged=False).is_accepted
    warming = {name: values + np.array([0.0, 0.2]) for name, values in steady.items()}
    (reason,) = judge_speed(warming, [1], noise, alpha=1e-4, has_diverged=False).reasons
    assert reason.startswith("unsteady")
