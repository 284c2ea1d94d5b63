"""Isotonic calibration: the least-squares fit, what it leaves alone, and files."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import Lattice
from specpilot.draft.builders import make_builder
from specpilot.draft.calibration import (
    EdgeCalibration,
    IsotonicMap,
    fit_edges,
    fit_isotonic,
    recorded_edges,
)
from specpilot.errors import CheckpointError, ConfigError
from tests.strategies import lattices

OUTCOMES = st.lists(st.booleans(), min_size=1, max_size=9)


def min_max_fit(hits: list[float]) -> list[float]:
    """The isotonic fit by its closed form: max over starts of min over ends of the mean between them."""
    count = len(hits)
    return [
        max(min(sum(hits[a : b + 1]) / (b + 1 - a) for b in range(i, count)) for a in range(i + 1))
        for i in range(count)
    ]


@given(OUTCOMES)
def test_the_fit_is_the_least_squares_one(outcomes: list[bool]) -> None:
    predicted = np.linspace(0.1, 0.9, len(outcomes))
    fitted = fit_isotonic(predicted, np.array(outcomes))
    expected = min_max_fit([float(one) for one in outcomes])
    # A pool stands at the mean of its predictions.
    pools = [
        (value, list(group))
        for value, group in itertools.groupby(range(len(outcomes)), lambda i: expected[i])
    ]
    assert fitted.accepted == pytest.approx([value for value, _ in pools])
    assert fitted.predicted == pytest.approx([predicted[group].mean() for _, group in pools])


def test_equal_predictions_are_one_pool() -> None:
    fitted = fit_isotonic(np.array([0.5, 0.2, 0.5, 0.5]), np.array([True, False, False, True]))
    assert fitted.predicted == (0.2, 0.5) and fitted.accepted == pytest.approx((0.0, 2 / 3))


@given(lattices(max_depth=5, max_width=5), st.integers(1, 20))
def test_the_identity_changes_no_tree(lattice: Lattice, num_nodes: int) -> None:
    same = EdgeCalibration((IsotonicMap((0.0, 1.0), (0.0, 1.0)),)).apply(lattice)
    known = lattice.edge_logprobs > math.log(1e-6)
    torch.testing.assert_close(same.edge_scores[known], lattice.edge_logprobs[known], atol=1e-5, rtol=0)
    assert ((same.edge_scores == -math.inf) == (lattice.edge_logprobs == -math.inf)).all()
    assert make_builder("best_first").build(same, 1, num_nodes).num_nodes <= num_nodes


@given(lattices(max_depth=5, max_width=5), OUTCOMES)
def test_children_keep_their_order(lattice: Lattice, outcomes: list[bool]) -> None:
    fitted = fit_isotonic(np.linspace(0.1, 0.9, len(outcomes)), np.array(outcomes))
    mapped = EdgeCalibration((fitted,)).apply(lattice)
    assert mapped.are_logprobs and (mapped.edge_scores <= 0.0).all()
    for before, after in zip(
        lattice.edge_logprobs.flatten(0, 1), mapped.edge_scores.flatten(0, 1), strict=True
    ):
        assert (after[before.argsort(stable=True)].diff().nan_to_num(0.0) >= 0.0).all()


def test_each_depth_has_its_map_and_the_last_one_goes_on() -> None:
    lattice = Lattice(torch.tensor([[1], [2], [3]]), torch.zeros(3, 1, 1))
    maps = tuple(IsotonicMap((0.0, 1.0), (0.0, top)) for top in (0.5, 0.25))
    edges = EdgeCalibration(maps).apply(lattice).edge_scores.flatten()
    assert edges.exp().tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_what_is_recorded_are_the_children_along_the_true_path() -> None:
    edges = torch.tensor([[[1.0, 0.0], [9.0, 0.0]], [[5.0, 0.0], [0.0, 5.0]]])
    lattice = Lattice(torch.tensor([[1, 2], [3, 4]]), edges)
    (first, first_right), (second, second_right) = recorded_edges(
        [(lattice, [2, 3]), (lattice, [7, 3]), (lattice, [])]
    )
    high, low = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))
    assert first == pytest.approx([high, low, high, low]) and first_right.tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert second == pytest.approx([1 / (1 + math.exp(5)), 1 / (1 + math.exp(-5))])
    assert second_right.tolist() == [True, False]


def test_a_biased_drafter_is_put_right() -> None:
    """A drafter that says the square root of the truth: the map finds the square, on data it has not seen."""
    rng = np.random.default_rng(0)
    steps = []
    for chance in rng.uniform(0.05, 0.95, 4000):
        said = math.log(math.sqrt(chance))
        lattice = Lattice(torch.tensor([[1]]), torch.full((1, 1, 1), said), are_logprobs=True)
        steps.append((lattice, [1 if rng.random() < chance else 2]))
    fitted = fit_edges(steps[:2000]).maps[0]
    ((predicted, is_right),) = recorded_edges(steps[2000:])
    for low in (0.3, 0.5, 0.7):
        part = (predicted >= low) & (predicted < low + 0.1)
        assert abs(fitted(predicted[part]).mean() - is_right[part].mean()) < 0.08
        assert abs(predicted[part].mean() - is_right[part].mean()) > 0.08
    with pytest.raises(ConfigError, match="fewer than 500 edges"):
        fit_edges(steps[:100])


@pytest.mark.parametrize(
    ("predicted", "accepted"),
    [((), ()), ((0.5, 0.5), (0.1, 0.2)), ((0.1, 0.2), (0.5, 0.4)), ((0.1,), (1.5,)), ((0.1, 0.2), (0.1,)),
     ((math.nan,), (0.5,))],
)  # fmt: skip
def test_what_is_no_rising_map_is_refused(predicted: tuple[float, ...], accepted: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="isotonic map"):
        IsotonicMap(predicted, accepted)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    made = EdgeCalibration((IsotonicMap((0.1, 0.7), (0.2, 0.9)), IsotonicMap((0.5,), (0.5,))))
    made.write(path)
    assert EdgeCalibration.read(path) == made
    for text, message in (
        ("{", "calibration"),
        ('{"version": 2, "maps": []}', "version is 2"),
        ('{"version": 1, "maps": []}', "no map"),
        ('{"version": 1, "maps": [{"predicted": [0.5], "accepted": [7]}]}', "isotonic map"),
        ("[]", "calibration"),
    ):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=message):
            EdgeCalibration.read(path)
