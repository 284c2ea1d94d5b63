"""The drafter's block follows what is accepted, corrected by how sure the drafter was."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import Draft, Lattice
from specpilot.draft.block_policy import BLOCK_ROWS, BlockPolicy, expected_drafts


def after(*steps: tuple[int, float]) -> BlockPolicy:
    policy = BlockPolicy()
    for num_correct, num_expected in steps:
        policy.learn(num_correct, num_expected)
    return policy


def test_it_begins_with_the_shortest_block() -> None:
    assert BlockPolicy().num_rows == 8 == BLOCK_ROWS[0]


@pytest.mark.parametrize(
    ("steps", "num_rows"),
    [
        ([(0, 7.0)] * 4, 8),  # sure and wrong
        ([(3, 3.4)] * 4, 8),
        ([(4, 4.0)] * 4, 12),
        ([(7, 7.0)] * 4, 16),
        ([(7, 2.0)] * 4, 16),  # unsure and right
        ([(15, 15.0)] * 3 + [(0, 15.0)] * 12, 8),  # it was right once
        ([(7, 7.0)] * 4 + [(7, 2.0)], 8),  # the newest draft is unsure
    ],
)
def test_blocks_by_acceptance_and_confidence(steps: list[tuple[int, float]], num_rows: int) -> None:
    assert after(*steps).num_rows == num_rows


def test_the_forecast_of_steady_steps_is_what_they_accept() -> None:
    assert after(*[(5, 6.5)] * 9).forecast == pytest.approx(5.0)


@given(
    st.lists(st.tuples(st.integers(0, 15), st.floats(0.0, 15.0)), max_size=12),
    st.integers(0, 14),
    st.floats(0.1, 15.0),
)
def test_more_correct_drafts_never_shorten_the_block(
    steps: list[tuple[int, float]], num_correct: int, num_expected: float
) -> None:
    less, more = after(*steps, (num_correct, num_expected)), after(*steps, (num_correct + 1, num_expected))
    assert less.num_rows <= more.num_rows
    assert less.num_rows in BLOCK_ROWS


def test_survival_is_the_drafters_own_estimate() -> None:
    lattice = Lattice(torch.tensor([[1, 2], [3, 4]]), torch.zeros(2, 2, 2))
    chain = torch.tensor([1, 3])
    assert expected_drafts(Draft(chain, None, lattice, survival=torch.tensor([0.75, 0.5]))) == 1.25
    # Without one: 1/2 for the first edge, 1/4 for both.
    assert expected_drafts(Draft(chain, None, lattice)) == pytest.approx(0.75)


def test_edges_are_those_of_the_chain() -> None:
    """Softmax of the row that the chain has reached, whichever candidates it runs over."""
    scores = torch.tensor([[[0.0, 2.0], [9.0, 9.0]], [[5.0, 0.0], [1.0, 3.0]]])
    draft = Draft(torch.tensor([2, 3]), None, Lattice(torch.tensor([[1, 2], [3, 4]]), scores))
    first = torch.softmax(scores[0, 0], 0)[1]
    second = torch.softmax(scores[1, 1], 0)[0]
    assert expected_drafts(draft) == pytest.approx(float(first + first * second), rel=1e-6)


def test_log_probabilities_stand_as_they_are() -> None:
    """Mass outside the candidates is no confidence."""
    scores = torch.log(torch.tensor([[[0.5, 0.25], [0.5, 0.25]]]))
    draft = Draft(torch.tensor([1]), None, Lattice(torch.tensor([[1, 2]]), scores, are_logprobs=True))
    assert expected_drafts(draft) == pytest.approx(0.5)
