"""The gate of the Q pass: tries both ways, takes what pays at the stated cost, and goes on looking."""

from __future__ import annotations

import pytest

from specpilot.errors import ConfigError
from specpilot.verify.q_gate import NUM_TRIALS, PATIENCE, QGate


def run(gate: QGate, num_steps: int, without: int, with_pass: int) -> list[bool]:
    decisions = []
    for _ in range(num_steps):
        decisions.append(gate.is_open())
        gate.learn(decisions[-1], with_pass if decisions[-1] else without)
    return decisions


def test_both_ways_are_tried_first() -> None:
    assert run(QGate(2.0), 2 * NUM_TRIALS, 1, 1) == [True, False] * NUM_TRIALS


@pytest.mark.parametrize(("with_pass", "is_worth_it"), [(9, True), (8, True), (7, False)])
def test_what_pays_at_the_cost_is_taken(with_pass: int, is_worth_it: bool) -> None:
    decisions = run(QGate(2.0), 200, 4, with_pass)[2 * NUM_TRIALS :]
    share = sum(decisions) / len(decisions)
    assert share > 0.9 if is_worth_it else share < 0.1


def test_the_other_way_is_looked_at_again() -> None:
    gate = QGate(2.0)
    decisions = run(gate, 4 * PATIENCE, 4, 2)[2 * NUM_TRIALS :]
    assert sum(decisions) == len(decisions) // (PATIENCE + 1)
    # The text changes: the pass pays now, and a few looks at it are enough.
    assert sum(run(gate, 6 * PATIENCE, 4, 40)) > 3 * PATIENCE


def test_the_same_tokens_give_the_same_decisions() -> None:
    assert run(QGate(1.5), 60, 3, 5) == run(QGate(1.5), 60, 3, 5)


@pytest.mark.parametrize("cost", [0.0, -1.0, float("nan")])
def test_a_cost_that_is_none_is_refused(cost: float) -> None:
    with pytest.raises(ConfigError, match="cycle_cost"):
        QGate(cost)
