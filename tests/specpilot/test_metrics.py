"""Acceptance statistics on hand-made steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.engines.base import StepRecord
from specpilot.metrics import AcceptCounter


def step(num_drafted: int, num_correct: int) -> StepRecord:
    return StepRecord(num_drafted, num_correct, bonus_id=0, draft_us=1.0, verify_us=1.0, total_us=2.0)


def test_hand_made_steps() -> None:
    counter = AcceptCounter([step(3, 3), step(3, 0), step(3, 1), step(2, 2)])
    assert (counter.num_steps, counter.num_drafted, counter.num_correct_drafts) == (4, 11, 6)
    assert counter.tau == 1 + 6 / 4
    assert counter.accept_by_position == (3 / 4, 2 / 4, 1 / 4)


def test_plain_decoding_has_tau_one_and_no_positions() -> None:
    counter = AcceptCounter([step(0, 0)] * 5)
    assert counter.tau == 1.0 and counter.accept_by_position == ()


def test_no_steps_have_no_tau() -> None:
    assert AcceptCounter().tau is None and AcceptCounter().accept_by_position == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15)).map(lambda pair: step(max(pair), min(pair))),
        min_size=1,
    )
)
def test_positions_add_up_to_tau_and_never_rise(steps: list[StepRecord]) -> None:
    counter = AcceptCounter(steps)
    shares = counter.accept_by_position
    assert 1 + sum(shares) == pytest.approx(counter.tau)
    assert list(shares) == sorted(shares, reverse=True)
    assert len(shares) == max(step.num_drafted for step in steps)


def test_positions_of_a_tree_are_its_depths() -> None:
    """30 nodes in 4 depths are 4 positions, however many were drafted."""
    tree = StepRecord(30, 2, 0, 1.0, 1.0, 2.0, num_positions=4, mechanism="best_first")
    counter = AcceptCounter([tree, tree])
    assert (counter.num_drafted, counter.tau, tree.num_rows) == (60, 3.0, 31)
    assert counter.accept_by_position == (1.0, 1.0, 0.0, 0.0)
