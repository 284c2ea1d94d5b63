"""The kernels of trees against their references, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specpilot_kernels.draft_tree import FlawError, beam_tree, best_nodes, check_tree
from specpilot_kernels.draft_tree.reference import (
    beam_tree_reference,
    best_nodes_reference,
    check_tree_reference,
)

Arrays = tuple[NDArray[np.int64], NDArray[np.float32]]
SEEDS = st.integers(0, 2**32)


def random_lattice(depth: int, width: int, seed: int, levels: int | None) -> Arrays:
    """With ``levels`` most scores are tied; some rows are unknown and some candidates impossible."""
    rng = np.random.default_rng(seed)
    ids = np.empty((depth, width), np.int64)
    for row in ids:
        row[:] = rng.permutation(50)[:width]
    shape = (depth, width, width)
    edges = (rng.normal(size=shape) * 2.0 if levels is None else rng.integers(0, levels, shape)).astype(
        np.float32
    )
    edges[rng.random(shape[:2]) < 0.1] = -np.inf
    edges[rng.random(shape) < 0.1] = -np.inf
    return ids, edges


LATTICES = st.builds(
    random_lattice,
    st.integers(0, 5),
    st.integers(1, 6),
    SEEDS,
    st.sampled_from([None, 1, 2, 3]),
)


def assert_same(got: tuple[NDArray[Any], ...], expected: tuple[NDArray[Any], ...]) -> None:
    for left, right in zip(got, expected, strict=True):
        assert left.dtype == right.dtype and left.tolist() == right.tolist()


@given(st.lists(st.tuples(LATTICES, st.booleans()), min_size=1, max_size=3), st.integers(0, 30), st.data())
def test_best_nodes_are_the_reference_s(
    parts: list[tuple[Arrays, bool]], spare: int, data: st.DataObject
) -> None:
    ids = [lattice[0] for lattice, _ in parts]
    edges = [np.where(flag, -np.abs(lattice[1]), lattice[1]) for lattice, flag in parts]
    flags, roots = [flag for _, flag in parts], list(range(len(parts)))
    most = data.draw(st.integers(1, 7))
    got = best_nodes(ids, edges, flags, roots, len(parts) + spare, max_children=most)
    expected = best_nodes_reference(ids, edges, flags, roots, len(parts) + spare, most)
    for left, right in zip(got, expected, strict=True):
        assert_same(left, right)


@given(LATTICES, st.integers(1, 40), st.integers(1, 7))
def test_beam_trees_are_the_reference_s(lattice: Arrays, num_nodes: int, beam_width: int) -> None:
    got = beam_tree(*lattice, 9, num_nodes, beam_width)
    assert_same(got, beam_tree_reference(*lattice, False, 9, num_nodes, beam_width))


@pytest.mark.parametrize("width", [1, 15, 16, 17, 33])
def test_real_and_odd_widths(width: int) -> None:
    lattice = random_lattice(15, width, 0, None)
    got = best_nodes([lattice[0]], [lattice[1]], [False], [9], 63)
    assert_same(got[0], best_nodes_reference([lattice[0]], [lattice[1]], [False], [9], 63, width)[0])
    assert_same(beam_tree(*lattice, 9, 63, 4), beam_tree_reference(*lattice, False, 9, 63, 4))


@given(
    st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 2), st.sampled_from([0.0, -1.0, -2.0, math.nan])))
)
def test_a_tree_is_refused_where_the_reference_refuses_it(rows: list[tuple[int, int, float]]) -> None:
    nodes = [(-1, 7, 0.0), *rows]
    parents, tokens = (np.array([node[i] for node in nodes], np.int64) for i in range(2))
    logprobs = np.array([node[2] for node in nodes], np.float32)
    expected = check_tree_reference(tokens, parents, logprobs)
    if expected is None:
        with pytest.raises(ValueError, match="tree"):
            check_tree(tokens, parents, logprobs)
    else:
        assert check_tree(tokens, parents, logprobs).tolist() == expected.tolist()


def test_a_flaw_is_named_by_its_place() -> None:
    ids, edges = random_lattice(3, 4, 0, None)
    flawed = edges.copy()
    flawed[2, 1, 3] = np.nan
    with pytest.raises(
        FlawError, match="request 1, edge score at depth 2 from candidate 1 to 3: got nan"
    ) as caught:
        best_nodes([ids, ids], [edges, flawed], [False, False], [0, 0], 2)
    assert (caught.value.request, caught.value.place) == (1, (2, 1, 3))


def test_wrong_arguments_are_refused() -> None:
    ids, edges = random_lattice(2, 3, 0, None)
    calls: list[tuple[Any, str]] = [
        (lambda: best_nodes([ids], [edges], [False], [1], 0), "num_nodes 0"),
        (lambda: best_nodes([ids], [edges], [False], [1, 2], 5), "2 roots"),
        (lambda: best_nodes([], [], [], [], 5), "0 roots"),
        (lambda: best_nodes([ids], [edges], [False], [1], 5, max_children=0), "max_children: got 0"),
        (lambda: best_nodes([ids], [edges[:1]], [False], [1], 5), r"edges \(1, 3, 3\)"),
        (lambda: best_nodes([ids], [edges.astype(np.float64)], [False], [1], 5), "edges float64"),
        (lambda: beam_tree(ids.astype(np.int32), edges, 1, 5, 2), "ids int32"),
        (lambda: beam_tree(ids[:, ::-1], edges, 1, 5, 2), "strides"),
        (lambda: beam_tree(ids, edges, 1, 5, 0), "beam_width 0"),
        (lambda: check_tree(ids[0], ids[0], edges[0, 0].astype(np.float64)), "logprobs float64"),
        (lambda: check_tree(ids[0], ids[0, :2], edges[0, 0]), r"parents \(2,\)"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
