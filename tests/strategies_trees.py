"""Shapes of trees, for hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

__all__ = ["NAMED_TREES", "paths_of", "tree_parents"]

NAMED_TREES: dict[str, list[int]] = {
    "one row": [-1],
    "chain of 9": list(range(-1, 8)),
    "deep chain": list(range(-1, 40)),
    "wide star": [-1] + [0] * 31,
    "two chains": [-1, 0, 0, 1, 2, 3, 4, 5, 6],
    "full binary": [-1] + [(row - 1) // 2 for row in range(1, 31)],
    "comb": [-1, 0, 0, 1, 1, 3, 3, 5, 5, 7, 7],
    "branches at the end": [-1, 0, 1, 2, 3, 4, 5, 5, 5, 5],
    "subtrees by turns": [-1, 0, 0, 0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4, 5],
}
"""Parents of trees that a random draw seldom meets."""


def tree_parents(max_rows: int = 24) -> st.SearchStrategy[NDArray[np.int64]]:
    """Parents of a tree of 1 to ``max_rows`` rows: a row hangs on any row before it, on the last one often."""
    choices = st.lists(st.one_of(st.just(0), st.integers(0, max_rows)), max_size=max_rows - 1)
    return choices.map(
        lambda backs: np.array([-1, *(max(0, row - back) for row, back in enumerate(backs))], np.int64)
    )


def paths_of(parents: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """For every row, the rows from the root to it."""
    paths: list[NDArray[np.int64]] = []
    for row, parent in enumerate(parents.tolist()):
        before = paths[parent] if parent >= 0 else np.empty(0, np.int64)
        paths.append(np.append(before, row))
    return paths
