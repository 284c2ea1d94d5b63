"""Chains and trees joined below a node: no twins, nothing lost, the budget kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree, attach_chain, attach_subtree
from tests.strategies import trees


def paths(tree: DraftTree) -> dict[tuple[int, ...], float]:
    """Tokens from the root on of every node, with its log-probability."""
    return {
        tuple(tree.token_ids[tree.path(node)].tolist()): float(tree.logprobs[node])
        for node in range(tree.num_nodes)
    }


@given(trees(), trees(), st.data())
def test_the_joined_tree_has_the_paths_of_both(
    tree: DraftTree, subtree: DraftTree, data: st.DataObject
) -> None:
    at_node = data.draw(st.integers(0, tree.num_nodes - 1))
    subtree.token_ids[0] = tree.token_ids[at_node]
    above = tuple(tree.token_ids[tree.path(at_node)].tolist())
    expected = set(paths(tree)) | {above + path[1:] for path in paths(subtree)}
    joined = attach_subtree(tree, at_node, subtree, 100)
    assert set(paths(joined)) == expected and joined.num_nodes == len(expected)
    # What stood there stays as it was and where it was.
    assert joined.prefix(tree.num_nodes).parents.tolist() == tree.parents.tolist()
    assert joined.logprobs[: tree.num_nodes].tolist() == tree.logprobs.tolist()


@given(trees(), trees(), st.data())
def test_a_smaller_budget_gives_the_beginning(
    tree: DraftTree, subtree: DraftTree, data: st.DataObject
) -> None:
    at_node = data.draw(st.integers(0, tree.num_nodes - 1))
    subtree.token_ids[0] = tree.token_ids[at_node]
    whole = attach_subtree(tree, at_node, subtree, 100)
    size = data.draw(st.integers(tree.num_nodes, 100))
    part = attach_subtree(tree, at_node, subtree, size)
    assert part.num_nodes == min(size, whole.num_nodes)
    assert part.token_ids.tolist() == whole.token_ids[: part.num_nodes].tolist()
    assert part.parents.tolist() == whole.parents[: part.num_nodes].tolist()


@given(trees(), st.lists(st.integers(0, 3), max_size=6), st.data())
def test_an_attached_chain_can_be_walked(tree: DraftTree, chain: list[int], data: st.DataObject) -> None:
    at_node = data.draw(st.integers(0, tree.num_nodes - 1))
    node, joined = at_node, attach_chain(tree, chain, 100, at_node=at_node, logprobs=[-0.5] * len(chain))
    for token in chain:
        before, node = node, joined.children[node][token]
        if node >= tree.num_nodes:
            assert joined.logprobs[node] == pytest.approx(float(joined.logprobs[before]) - 0.5)


def test_a_chain_without_probabilities_is_certain() -> None:
    tree = DraftTree(np.array([1, 2]), np.array([-1, 0]), np.array([0.0, -1.0], np.float32))
    joined = attach_chain(tree, [2, 5], 9)
    assert joined.token_ids.tolist() == [1, 2, 5] and joined.logprobs.tolist() == [0.0, -1.0, -1.0]


def test_wrong_arguments_are_refused() -> None:
    tree = DraftTree.chain(1, [2, 3])
    for call, message in (
        (lambda: attach_subtree(tree, 3, DraftTree.chain(3, []), 9), "at_node: got 3"),
        (lambda: attach_subtree(tree, -1, DraftTree.chain(3, []), 9), "at_node: got -1"),
        (lambda: attach_subtree(tree, 1, DraftTree.chain(3, []), 9), "root token 3, expected 2"),
        (lambda: attach_subtree(tree, 1, DraftTree.chain(2, [7]), 2), "max_nodes: got 2, expected 3"),
        (lambda: attach_chain(tree, [4], 9, at_node=7), "at_node: got 7"),
        (lambda: attach_chain(tree, [4, 5], 9, logprobs=[-1.0]), "logprobs: got 1, expected 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
