"""Draft trees: what is refused, and depths, paths, children and prefixes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree
from tests.strategies import trees


def tree(tokens: list[int], parents: list[int], logprobs: list[float] | None = None) -> DraftTree:
    scores = np.zeros(len(tokens), np.float32) if logprobs is None else np.array(logprobs, np.float32)
    return DraftTree(np.array(tokens, np.int64), np.array(parents, np.int64), scores)


@pytest.mark.parametrize(
    ("tokens", "parents", "logprobs", "message"),
    [
        ([], [], None, "N at least 1"),
        ([1], [0], None, "for node 0, expected -1"),
        ([1, 2], [-1, -1], None, "got -1 for node 1, expected 0 to 0"),  # two roots: a parent is missing
        ([1, 2], [-1, 7], None, "got 7 for node 1, expected 0 to 0"),  # a parent that is no node
        ([1, 2], [-1, 1], None, "got 1 for node 1, expected 0 to 0"),  # a node above itself
        ([1, 2, 3], [-1, 2, 1], None, "got 2 for node 1, expected 0 to 0"),  # a ring of two
        ([1, 2, 3, 2], [-1, 0, 0, 0], None, "token 2 twice under node 0"),
        ([1, 2], [-1, 0], [0.0, math.nan], "got nan for node 1"),
        ([1, 2], [-1, 0], [math.nan, 0.0], "got nan for node 0"),
        ([1, 2, 3], [-1, 0, 1], [0.0, -2.0, -1.0], "-1.0 for node 2, expected a number not above"),
        ([1, 2], [-1, 0, 0], None, r"token_ids \(2,\), parents \(3,\)"),
    ],
)
def test_what_is_no_tree_is_refused(
    tokens: list[int], parents: list[int], logprobs: list[float] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tree(tokens, parents, logprobs)


def test_wrong_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="token_ids int32"):
        DraftTree(np.array([1], np.int32), np.array([-1]), np.zeros(1, np.float32))


def test_the_same_token_may_stand_under_different_parents() -> None:
    assert tree([1, 2, 3, 4, 4], [-1, 0, 0, 1, 2]).depths.tolist() == [0, 1, 1, 2, 2]


@given(trees())
def test_depths_paths_and_children_agree(made: DraftTree) -> None:
    for node in range(made.num_nodes):
        path = made.path(node)
        assert path[0] == 0 and path[-1] == node and len(path) == made.depths[node] + 1
        walked = 0
        for step in path[1:]:
            walked = made.children[walked][int(made.token_ids[step])]
        assert walked == node
    assert sum(len(children) for children in made.children) == made.num_nodes - 1
    assert made.is_chain == (made.parents.tolist() == list(range(-1, made.num_nodes - 1)))


@given(trees(), st.data())
def test_every_beginning_of_a_tree_is_a_tree(made: DraftTree, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, made.num_nodes))
    prefix = made.prefix(size)
    assert prefix.num_nodes == size and (prefix.depths == made.depths[:size]).all()
    for wrong in (0, made.num_nodes + 1):
        with pytest.raises(ValueError, match="num_nodes"):
            made.prefix(wrong)


def test_arrays_that_may_not_be_written_to_are_taken() -> None:
    arrays = np.array([1, 2]), np.array([-1, 0]), np.zeros(2, np.float32)
    for array in arrays:
        array.flags.writeable = False
    assert DraftTree(*arrays).depths.tolist() == [0, 1]


def test_a_chain_is_a_tree_of_one_path() -> None:
    made = DraftTree.chain(5, [6, 6, 7])
    assert made.token_ids.tolist() == [5, 6, 6, 7] and made.is_chain and made.depths.tolist() == [0, 1, 2, 3]
