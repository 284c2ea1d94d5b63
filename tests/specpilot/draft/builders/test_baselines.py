"""Chain, DDTree, EAGLE-2 and Sequoia, each against its definition."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree, Lattice
from specpilot.draft.builders import make_builder
from specpilot.draft.builders.base import arrays_of
from specpilot.draft.builders.sequoia import SequoiaBuilder, expected_tokens, positional_rates
from specpilot.engines.mechanisms import Builder
from specpilot.errors import ConfigError
from specpilot_kernels.draft_tree import marginal_edges
from tests.strategies import lattices

BUDGETS = st.integers(1, 40)
RATES = st.lists(st.sampled_from([0.9, 0.5, 0.5, 0.25, 0.1, 0.0]), min_size=1, max_size=4)


def edges_of(lattice: Lattice, tree: DraftTree) -> list[tuple[int, int, int]]:
    """(depth, parent's column, column) of every node but the root."""
    columns = [0]
    found = []
    for node in range(1, tree.num_nodes):
        depth, parent = int(tree.depths[node]) - 1, columns[int(tree.parents[node])]
        column = lattice.candidate_ids[depth].tolist().index(int(tree.token_ids[node]))
        columns.append(column)
        found.append((depth, parent, column))
    return found


@pytest.mark.parametrize("name", get_args(Builder))
@given(lattices(max_depth=8, max_width=8), BUDGETS)
def test_every_tree_keeps_the_budget_and_to_known_edges(
    name: Builder, lattice: Lattice, num_nodes: int
) -> None:
    tree = make_builder(name).build(
        lattice, 77, num_nodes
    )  # DraftTree refuses twins, wrong parents, rising scores
    assert 1 <= tree.num_nodes <= num_nodes and tree.token_ids[0] == 77
    for depth, parent, column in edges_of(lattice, tree):
        assert lattice.edge_scores[depth, parent, column] > -math.inf


@pytest.mark.parametrize("name", get_args(Builder))
def test_a_root_alone_and_one_position(name: Builder) -> None:
    lattice = Lattice(torch.tensor([[4, 5]]), torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]))
    builder = make_builder(name)
    assert builder.name == name
    assert builder.build(lattice, 8, 1).token_ids.tolist() == [8]
    assert builder.build(lattice, 8, 2).token_ids.tolist() == [8, 5]
    assert builder.build(lattice, 8, 9).token_ids.tolist() == ([8, 5] if name == "chain" else [8, 5, 4])
    nothing = Lattice(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, 2, 2))
    assert builder.build(nothing, 8, 9).token_ids.tolist() == [8]


@pytest.mark.parametrize("name", get_args(Builder))
def test_equal_scores_throughout_give_one_tree(name: Builder) -> None:
    lattice = Lattice(torch.tensor([[9, 2], [5, 1]]), torch.zeros(2, 2, 2))
    tokens = make_builder(name).build(lattice, 0, 7).token_ids.tolist()
    # Sequoia's ranks are worth 0.75 and less, so it goes down the first child before it takes the second.
    expected = {"chain": [0, 2, 1], "sequoia": [0, 2, 1, 9, 5, 1, 5]}.get(name, [0, 2, 9, 1, 1, 5, 5])
    assert tokens == expected


@given(lattices(min_depth=1, max_depth=15, max_width=16, has_gaps=False, are_logprobs=False))
def test_the_chain_is_the_greedy_one(lattice: Lattice) -> None:
    expected = [77, *lattice.greedy_chain().tolist()]
    tree = make_builder("chain").build(lattice, 77, 40)
    assert tree.is_chain and tree.token_ids.tolist() == expected
    for size in range(1, lattice.depth + 2):
        assert make_builder("chain").build(lattice, 77, size).token_ids.tolist() == expected[:size]


def test_the_chain_ends_where_nothing_is_known() -> None:
    edges = torch.full((3, 2, 2), -math.inf)
    edges[0], edges[1, 1] = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])
    lattice = Lattice(torch.tensor([[1, 2], [3, 4], [5, 6]]), edges)
    assert make_builder("chain").build(lattice, 0, 9).token_ids.tolist() == [0, 2, 3]


def path_marginals(lattice: Lattice) -> list[list[float]]:
    """By the sum over all paths."""
    depth, width = lattice.candidate_ids.shape
    laws = [[0.0] * width for _ in range(depth)]
    probabilities = torch.softmax(lattice.edge_scores.double(), -1).tolist()
    for end in range(depth):
        for path in itertools.product(range(width), repeat=end + 1):
            chance = 1.0
            for t, column in enumerate(path):
                chance *= probabilities[t][path[t - 1] if t else 0][column]
            laws[end][path[-1]] += chance
    return laws


@given(lattices(min_depth=1, max_depth=4, max_width=4, has_gaps=False, are_logprobs=False), BUDGETS)
def test_ddtree_is_the_best_first_tree_of_the_marginals(lattice: Lattice, num_nodes: int) -> None:
    laws = path_marginals(lattice)
    found, _ = marginal_edges(*arrays_of(lattice))
    np.testing.assert_allclose(found, laws, atol=1e-6)
    rows = torch.from_numpy(found).log().float()
    flat = Lattice(lattice.candidate_ids, rows[:, None, :].repeat(1, lattice.width, 1), are_logprobs=True)
    expected = make_builder("best_first").build(flat, 77, num_nodes)
    got = make_builder("ddtree").build(lattice, 77, num_nodes)
    assert got.token_ids.tolist() == expected.token_ids.tolist()
    assert got.parents.tolist() == expected.parents.tolist()


@given(lattices(min_depth=1, max_depth=6, max_width=6, has_gaps=False, are_logprobs=False), BUDGETS)
def test_ddtree_is_best_first_where_a_lattice_has_no_edges(lattice: Lattice, num_nodes: int) -> None:
    rows = torch.log_softmax(lattice.edge_scores[:, :1], -1).expand(-1, lattice.width, -1).contiguous()
    plain = Lattice(lattice.candidate_ids, rows)
    trees = [make_builder(name).build(plain, 77, num_nodes) for name in ("ddtree", "best_first")]
    np.testing.assert_allclose(trees[0].logprobs, trees[1].logprobs, atol=1e-5)


def test_ddtree_ignores_what_stood_before() -> None:
    # After 1 comes 3, after 2 comes 4; 1 is likelier, so by the marginals 3 is likelier after 2 as well.
    edges = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[5.0, 0.0], [0.0, 5.0]]])
    lattice = Lattice(torch.tensor([[1, 2], [3, 4]]), edges)
    children = make_builder("ddtree").build(lattice, 0, 6).children
    assert next(iter(children[children[0][2]])) == 3
    children = make_builder("best_first").build(lattice, 0, 6).children
    assert next(iter(children[children[0][2]])) == 4


@given(lattices(max_depth=6, max_width=4), BUDGETS)
def test_eagle2_with_a_beam_that_leaves_nothing_out_is_best_first(lattice: Lattice, num_nodes: int) -> None:
    wide = make_builder("eagle2", top_k=1000).build(lattice, 77, min(num_nodes, 20))
    best = make_builder("best_first").build(lattice, 77, min(num_nodes, 20))
    assert (
        wide.token_ids.tolist() == best.token_ids.tolist() and wide.parents.tolist() == best.parents.tolist()
    )


@given(lattices(min_depth=2, max_depth=6, min_width=4, max_width=8, has_gaps=False), st.integers(1, 3))
def test_eagle2_grows_the_same_number_of_nodes_whatever_the_scores(lattice: Lattice, top_k: int) -> None:
    tree = make_builder("eagle2", top_k=top_k).build(lattice, 77, 1000)
    assert tree.num_nodes == 1 + top_k + (lattice.depth - 1) * top_k**2
    with_children = {parent for parent in tree.parents.tolist() if parent >= 0}
    for depth in range(lattice.depth):
        parents = [node for node in with_children if tree.depths[node] == depth]
        assert len(parents) == (1 if depth == 0 else top_k)
        others = [node for node in np.flatnonzero(tree.depths == depth) if node not in parents]
        assert all(tree.logprobs[node] <= tree.logprobs[parents].min() for node in others)


def best_by_brute_force(rates: list[float], num_nodes: int, depth: int) -> float:
    """Without a program: a node is worth the product of its ranks' rates; some shape holds the worthiest that its
    parents allow, and as a node is never worth more than its parent these are the worthiest of all."""
    worths = [
        math.prod(path) for length in range(depth + 1) for path in itertools.product(rates, repeat=length)
    ]
    return sum(sorted(worths, reverse=True)[:num_nodes])


@given(RATES, st.integers(1, 12), st.integers(0, 4))
def test_sequoia_s_shape_is_the_best_there_is(rates: list[float], num_nodes: int, depth: int) -> None:
    assert expected_tokens(rates, num_nodes, depth) == pytest.approx(
        best_by_brute_force(rates, num_nodes, depth)
    )


@given(
    lattices(max_depth=4, max_width=5, has_gaps=False),
    st.lists(st.sampled_from([0.9, 0.5, 0.25, 0.1]), min_size=1, max_size=4),
    st.integers(1, 20),
)
def test_sequoia_s_tree_has_the_shape_s_worth(lattice: Lattice, rates: list[float], num_nodes: int) -> None:
    tree = SequoiaBuilder(rates).build(lattice, 77, num_nodes)
    worths = [1.0]
    for node, (depth, row, column) in enumerate(edges_of(lattice, tree), start=1):
        scores, ids = lattice.edge_scores[depth, row].tolist(), lattice.candidate_ids[depth].tolist()
        order = sorted(range(lattice.width), key=lambda c: (-scores[c], ids[c]))
        worths.append(worths[int(tree.parents[node])] * rates[order.index(column)])
    assert sum(worths) == pytest.approx(expected_tokens(rates[: lattice.width], num_nodes, lattice.depth))
    assert (np.diff(worths) <= 1e-12).all()


def test_positional_rates_are_counted_along_the_true_path() -> None:
    # Ranks at depth 0: 1, 2; below 1: 3, 4; below 2: 4, 3.
    edges = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[5.0, 0.0], [0.0, 5.0]]])
    lattice = Lattice(torch.tensor([[1, 2], [3, 4]]), edges)
    steps = [(lattice, [1, 3]), (lattice, [2, 3]), (lattice, [1, 9]), (lattice, [9, 3]), (lattice, [1])]
    # 8 nodes visited: 5 roots and 3 below; rank 1 hit by 1, 3, 1, 1, rank 2 by 2 and the 3 below it.
    assert positional_rates(steps, 2) == (4 / 8, 2 / 8)
    with pytest.raises(ConfigError, match="no step"):
        positional_rates([(lattice, [])], 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "best"}, "'best'"),
        ({"name": "best_first", "top_k": 4}, "top_k"),
        ({"name": "eagle2", "rates": [0.5]}, "rates"),
        ({"name": "eagle2", "top_k": 0}, "top_k: got 0"),
        ({"name": "sequoia", "rates": []}, "rates"),
        ({"name": "sequoia", "rates": [1.5]}, r"1\.5"),
    ],
)
def test_wrong_options_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_builder(**arguments)
