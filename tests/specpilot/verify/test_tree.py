"""The walk over a tree: it follows the target's own tokens, on a chain as greedy chain verification does."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree
from specpilot.verify import verify_greedy, walk_tree
from tests.oracles.tree_law import random_tree

TREES = st.builds(random_tree, st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 5))


@given(TREES, st.lists(st.integers(0, 5), min_size=40, max_size=40))
def test_the_walk_emits_what_the_target_says_and_keeps_its_path(tree: DraftTree, says: list[int]) -> None:
    """``says[i]`` is the target's token i places after the root, whatever the tree holds."""
    asked: list[int] = []

    def choose(node: int) -> int:
        asked.append(node)
        return says[tree.depths[node]]

    walk = walk_tree(tree, choose)
    assert walk.token_ids == says[: len(walk.token_ids)]
    assert asked == walk.rows == tree.path(walk.rows[-1])
    assert tree.token_ids[walk.rows[1:]].tolist() == walk.token_ids[:-1]
    assert walk.num_correct_drafts == len(walk.token_ids) - 1
    # It stopped where no child says the bonus, and nowhere else.
    assert walk.token_ids[-1] not in tree.children[walk.rows[-1]]


@given(st.integers(0, 5), st.lists(st.integers(0, 2), max_size=8), st.integers(0, 10_000))
def test_on_a_chain_it_equals_greedy_verification(root: int, drafts: list[int], seed: int) -> None:
    choices = torch.randint(3, (len(drafts) + 1,), generator=torch.Generator().manual_seed(seed))
    expected = verify_greedy(torch.tensor(drafts, dtype=torch.int64), choices)
    walk = walk_tree(DraftTree.chain(root, drafts), lambda node: int(choices[node]))
    assert (walk.num_correct_drafts, walk.token_ids[-1]) == (expected.num_correct_drafts, expected.bonus_id)


def test_a_root_alone_is_a_plain_step() -> None:
    walk = walk_tree(DraftTree.chain(7, []), lambda node: 7)
    assert (walk.rows, walk.token_ids) == ([0], [7])


def test_equal_tokens_on_different_branches_are_told_apart() -> None:
    """Both children of the root are followed by 3; only the branch that was taken goes on."""
    tree = DraftTree(np.array([9, 1, 2, 3, 3, 4]), np.array([-1, 0, 0, 1, 2, 4]), np.zeros(6, np.float32))
    says = {0: 2, 2: 3, 4: 4, 5: 8, 1: 0, 3: 0}
    walk = walk_tree(tree, says.__getitem__)
    assert (walk.rows, walk.token_ids) == ([0, 2, 4, 5], [2, 3, 4, 8])
