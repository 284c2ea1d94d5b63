"""Best-first trees are the most likely nodes by brute force, and every smaller one begins the larger."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree, Lattice
from specpilot.draft.builders import make_builder, share_nodes
from specpilot.errors import DraftError
from tests.strategies import lattices

BEST_FIRST = make_builder("best_first")
BUDGETS = st.integers(1, 40)


def edge_logprobs(lattice: Lattice, depth: int, row: int) -> list[float]:
    """One row in Python's own arithmetic."""
    scores = lattice.edge_scores[depth, row].tolist()
    if lattice.are_logprobs or max(scores) == -math.inf:
        return scores
    normalizer = max(scores) + math.log(sum(math.exp(score - max(scores)) for score in scores))
    return [score - normalizer for score in scores]


def all_nodes(lattice: Lattice, root_id: int, owner: int = 0) -> Iterator[tuple[Any, ...]]:
    """Every path of the lattice as (-logprob, depth, token, owner, key of the parent); sorted, this is the order."""
    stack: list[tuple[tuple[Any, ...], int]] = [((-0.0, 0, root_id, owner, ()), 0)]
    while stack:
        key, row = stack.pop()
        yield key
        if key[1] < lattice.depth:
            tokens = lattice.candidate_ids[key[1]].tolist()
            for column, edge in enumerate(edge_logprobs(lattice, key[1], row)):
                if edge > -math.inf:
                    stack.append(((-(-key[0] + edge), key[1] + 1, tokens[column], owner, key), column))


def tree_of(keys: list[tuple[Any, ...]]) -> DraftTree:
    parents = [keys.index(key[4]) if key[4] else -1 for key in keys]
    return DraftTree(
        np.array([key[2] for key in keys]),
        np.array(parents),
        np.array([-key[0] for key in keys], np.float32),
    )


def assert_equal(got: DraftTree, expected: DraftTree) -> None:
    assert got.token_ids.tolist() == expected.token_ids.tolist()
    assert got.parents.tolist() == expected.parents.tolist()
    assert got.logprobs.tolist() == expected.logprobs.tolist()


@given(lattices(max_depth=4, max_width=4), BUDGETS)
def test_the_tree_is_the_first_nodes_of_all_there_are(lattice: Lattice, num_nodes: int) -> None:
    expected = tree_of(sorted(all_nodes(lattice, 3))[:num_nodes])
    assert_equal(BEST_FIRST.build(lattice, 3, num_nodes), expected)


@given(lattices(max_depth=15, max_width=16), BUDGETS)
def test_a_tree_begins_the_tree_of_one_node_more(lattice: Lattice, num_nodes: int) -> None:
    smaller, larger = (BEST_FIRST.build(lattice, 3, size) for size in (num_nodes, num_nodes + 1))
    assert_equal(larger.prefix(smaller.num_nodes), smaller)
    assert smaller.num_nodes == num_nodes or larger.num_nodes == smaller.num_nodes


@given(lattices(max_depth=15, max_width=16), BUDGETS)
def test_log_probabilities_are_sums_of_edges_and_fall(lattice: Lattice, num_nodes: int) -> None:
    tree = BEST_FIRST.build(lattice, 3, num_nodes)
    assert (np.diff(tree.logprobs) <= 0.0).all()
    for node in range(tree.num_nodes):
        row, total = 0, 0.0
        for step in tree.path(node)[1:]:
            depth = int(tree.depths[step]) - 1
            columns = lattice.candidate_ids[depth].tolist()
            column = columns.index(int(tree.token_ids[step]))
            total += edge_logprobs(lattice, depth, row)[column]
            row = column
        assert float(tree.logprobs[node]) == np.float32(total)


def test_equal_scores_go_by_depth_and_token() -> None:
    lattice = Lattice(torch.tensor([[9, 2], [5, 1]]), torch.zeros(2, 2, 2))
    tree = BEST_FIRST.build(lattice, 0, 7)
    # Both first tokens, then below each the lower token first, and of equal ones that of the earlier parent.
    assert tree.token_ids.tolist() == [0, 2, 9, 1, 1, 5, 5]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 2, 1, 2]


@given(lattices(max_width=16, max_depth=15), BUDGETS, st.integers(0, 2**32))
def test_the_order_of_candidates_does_not_matter(lattice: Lattice, num_nodes: int, seed: int) -> None:
    # Levels that sum exactly in any order: a shuffled row must have the same normaliser.
    edges = torch.where(lattice.edge_scores > 0.0, 0.0, lattice.edge_scores.clamp(min=-1.0).round() * 800.0)
    lattice = Lattice(lattice.candidate_ids, edges)
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(lattice.width, generator=generator) for _ in range(lattice.depth)]
    ids, scores = lattice.candidate_ids.clone(), lattice.edge_scores.clone()
    for depth, order in enumerate(orders):
        ids[depth] = lattice.candidate_ids[depth, order]
        before = orders[depth - 1] if depth else torch.arange(lattice.width)
        scores[depth] = lattice.edge_scores[depth][before][:, order]
    shuffled = BEST_FIRST.build(Lattice(ids, scores), 3, num_nodes)
    assert_equal(shuffled, BEST_FIRST.build(lattice, 3, num_nodes))


def test_a_root_alone_and_a_lattice_of_no_depth() -> None:
    some = Lattice(torch.tensor([[4, 5]]), torch.zeros(1, 2, 2))
    none = Lattice(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, 2, 2))
    assert BEST_FIRST.build(some, 8, 1).token_ids.tolist() == [8]
    assert BEST_FIRST.build(none, 8, 5).token_ids.tolist() == [8]
    assert BEST_FIRST.build(some, 8, 5).token_ids.tolist() == [8, 4, 5]
    with pytest.raises(ValueError, match="num_nodes 0"):
        BEST_FIRST.build(some, 8, 0)


@given(st.lists(lattices(max_depth=3, max_width=4), min_size=1, max_size=4), st.integers(0, 40))
def test_shares_are_beginnings_and_together_the_most_likely_nodes(parts: list[Lattice], spare: int) -> None:
    budget = len(parts) + spare
    roots = list(range(len(parts)))
    shares = share_nodes(parts, roots, budget)
    order = sorted(key for owner, part in enumerate(parts) for key in all_nodes(part, roots[owner], owner))[
        :budget
    ]
    for owner, (part, share) in enumerate(zip(parts, shares, strict=True)):
        assert_equal(share, tree_of([key for key in order if key[3] == owner]))
        assert_equal(share, BEST_FIRST.build(part, roots[owner], budget).prefix(share.num_nodes))


def test_every_request_keeps_its_root_and_a_budget_below_that_is_refused() -> None:
    sure = Lattice(torch.arange(12).reshape(12, 1), torch.zeros(12, 1, 1))
    open_end = Lattice(torch.arange(16).reshape(1, 16), torch.zeros(1, 16, 16))
    shares = share_nodes([open_end, sure, open_end], [1, 2, 3], 8)
    assert [share.num_nodes for share in shares] == [1, 6, 1]
    with pytest.raises(ValueError, match="num_nodes 2"):
        share_nodes([sure, sure, sure], [1, 2, 3], 2)
    assert share_nodes([], [], 5) == []


@pytest.mark.parametrize("name", ["chain", "best_first", "ddtree", "eagle2", "sequoia"])
@pytest.mark.parametrize("flaw", [math.nan, math.inf])
@given(lattices(min_depth=1), st.data())
def test_scores_that_are_none_are_refused_by_every_builder(
    name: Any, flaw: float, lattice: Lattice, data: st.DataObject
) -> None:
    depth = data.draw(st.integers(0, lattice.depth - 1))
    parent = data.draw(st.integers(0, lattice.width - 1)) if depth else 0
    column = data.draw(st.integers(0, lattice.width - 1))
    lattice.edge_scores[depth, parent, column] = flaw
    with pytest.raises(DraftError, match=f"depth {depth} from candidate {parent} to {column}: got {flaw}"):
        make_builder(name).build(lattice, 3, data.draw(BUDGETS))


def test_a_flaw_where_nothing_is_read_does_no_harm() -> None:
    edges = torch.zeros(2, 2, 2)
    edges[0, 1] = math.nan
    assert BEST_FIRST.build(Lattice(torch.tensor([[1, 2], [3, 4]]), edges), 0, 9).num_nodes == 7


def test_log_probabilities_above_zero_are_refused() -> None:
    lattice = Lattice(torch.tensor([[1, 2]]), torch.full((1, 2, 2), 0.5), are_logprobs=True)
    with pytest.raises(DraftError, match=r"got 0\.5, expected a log-probability"):
        BEST_FIRST.build(lattice, 0, 3)


def test_a_token_twice_under_one_parent_is_refused() -> None:
    with pytest.raises(ValueError, match="token 1 twice under node 0"):
        BEST_FIRST.build(Lattice(torch.tensor([[1, 1]]), torch.zeros(1, 2, 2)), 0, 3)
