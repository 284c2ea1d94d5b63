"""A measured cost stops a tree where its next nodes would not pay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import Lattice, StepCost
from specpilot.draft.builders import make_builder
from specpilot.draft.step_cost import BUNDLED_STEP_COST
from specpilot.errors import ConfigError
from tests.strategies import lattices


def test_time_between_and_past_the_measured_rows() -> None:
    cost = StepCost((2, 4, 8), (10.0, 20.0, 60.0))
    assert cost.time_us(np.array([1, 2, 3, 4, 6, 8, 10])).tolist() == [
        10.0,
        10.0,
        15.0,
        20.0,
        40.0,
        60.0,
        80.0,
    ]


@pytest.mark.parametrize(
    ("rows", "times"),
    [((1,), (1.0,)), ((2, 1), (1.0, 2.0)), ((0, 1), (1.0, 2.0)), ((1, 2), (2.0, 1.0)), ((1, 2), (0.0, 1.0)),
     ((1, 2), (1.0, math.nan)), ((1, 2), (1.0, math.inf)), ((1, 2), (1.0,))],
)  # fmt: skip
def test_what_is_no_cost_is_refused(rows: tuple[int, ...], times: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="step cost"):
        StepCost(rows, times)


@given(
    st.lists(st.floats(0.001, 1.0), max_size=20),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=8),
    st.floats(0.5, 20.0),
)
def test_the_best_number_of_nodes_by_trying_all(
    chances: list[float], rises: list[float], first: float
) -> None:
    logprobs = np.array([0.0, *np.log(sorted(chances, reverse=True))], np.float32)
    times = first + np.cumsum([0.0, *rises])
    cost = StepCost(tuple(range(1, len(times) + 1)), tuple(times.tolist()))
    count = cost.best_num_nodes(logprobs)
    rates = [
        sum(math.exp(one) for one in logprobs[:n].tolist()) / float(cost.time_us(np.array(n)))
        for n in range(1, len(logprobs) + 1)
    ]
    assert rates[count - 1] == pytest.approx(max(rates))


def test_with_a_convex_cost_the_tree_stops_where_the_ratio_first_falls() -> None:
    cost = StepCost((1, 2, 3, 4, 5, 6), (10.0, 11.0, 12.5, 15.0, 19.0, 25.0))
    logprobs = np.log(np.array([1.0, 0.6, 0.3, 0.2, 0.1, 0.05])).astype(np.float32)
    total, stop = 1.0, 1
    for n in range(1, 6):  # (1 + Phi + exp(s)) / c(n + 1)
        if (total + math.exp(logprobs[n])) / cost.times_us[n] < total / cost.times_us[n - 1]:
            break
        total, stop = total + math.exp(logprobs[n]), n + 1
    assert cost.best_num_nodes(logprobs) == stop == 3


@given(lattices(max_depth=8, max_width=8), st.integers(1, 40))
def test_a_cost_aware_tree_begins_the_tree(lattice: Lattice, num_nodes: int) -> None:
    free = StepCost((1, 2), (1.0, 1.0))
    dear = StepCost((1, 2), (1.0, 1000.0))
    full = make_builder("best_first").build(lattice, 3, num_nodes)
    trees = [
        make_builder("best_first", step_cost=cost).build(lattice, 3, num_nodes)
        for cost in (free, dear, BUNDLED_STEP_COST)
    ]
    # A node whose chance is lost in rounding brings nothing even where it is free.
    assert trees[0].num_nodes <= full.num_nodes and trees[1].num_nodes == 1
    for tree in trees:
        assert tree.token_ids.tolist() == full.token_ids[: tree.num_nodes].tolist()
    gains = np.exp(full.logprobs.astype(np.float64)).cumsum()
    assert gains[trees[0].num_nodes - 1] == gains[-1]
