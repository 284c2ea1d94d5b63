"""The rule's error rates on simulated boxes, beside those of the naive rule."""

from __future__ import annotations

import numpy as np
import pytest

from specpilot.controller.simulation import (
    Box,
    judge_by_estimate,
    judge_once,
    promotion_rate,
    round_error_rate,
)


@pytest.mark.parametrize("run_sd", [0.001, 0.01])
def test_a_round_of_null_changes_promotes_none(run_sd: float) -> None:
    """80 tries a round; a true rate of 2.5% or less gives at most 4 of 60 with probability 0.98."""
    rate = round_error_rate(Box(run_sd), np.random.default_rng(1), num_rounds=60)
    assert rate <= 4 / 60


def test_the_naive_rule_promotes_null_changes() -> None:
    assert (
        round_error_rate(Box(0.001), np.random.default_rng(2), num_rounds=10, judge=judge_by_estimate) == 1.0
    )


def test_the_repetition_is_needed() -> None:
    """Heavy tails and a noise estimate of 8 trials: a single trial errs more often than the round's budget says."""
    box = Box(0.03)
    once = round_error_rate(box, np.random.default_rng(3), num_rounds=60, judge=judge_once)
    twice = round_error_rate(box, np.random.default_rng(3), num_rounds=60)
    assert twice < once and once > 0.025


def test_a_true_gain_of_3_percent_is_found() -> None:
    """On a box with 0.3% noise and gains that differ by request; power is stated in DESIGN.md."""
    box = Box(0.003, effect_sd=0.02)
    assert promotion_rate(box, 1.03, np.random.default_rng(4), num_trials=100) >= 0.9
    assert promotion_rate(box, 1.0, np.random.default_rng(5), num_trials=100) == 0.0
