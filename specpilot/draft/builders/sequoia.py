"""Sequoia trees: one shape for all steps, from a dynamic program (https://arxiv.org/abs/2402.12374, section 3.1).

The assumption is *positional acceptance*: the child of rank k (by the drafter's score) is the right one with
probability p_k, whatever the node and the scores. A tree of n nodes and depth d then commits

    c(n, d) = 1 + max over a_1 + a_2 + ... = n - 1 of  sum over k of p_k c(a_k, d - 1),   c(0, d) = 0

tokens in expectation, root included. The shape is computed once per (n, d); in a step its places are filled with the
lattice's candidates of these ranks, equal scores by token id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.builders.base import arrays_of, refuse_flaw
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError
from specpilot_kernels.draft_tree import FlawError, best_nodes

__all__ = ["DEFAULT_RATES", "SequoiaBuilder", "expected_tokens", "positional_rates"]

DEFAULT_RATES = (0.75, 0.1, 0.03, 0.015, 0.01, 0.006, 0.004, 0.003)


class SequoiaBuilder:
    """A :class:`specpilot.draft.builders.TreeBuilder` of a fixed shape.

    Parameters
    ----------
    rates
        p_1, p_2, ..., each from 0 to 1; candidates of higher rank are not used. :func:`positional_rates` fits them.
    """

    name = "sequoia"

    def __init__(self, rates: Sequence[float] = DEFAULT_RATES) -> None:
        self.rates = tuple(float(rate) for rate in rates)
        if not self.rates or not all(0.0 <= rate <= 1.0 for rate in self.rates):
            raise ConfigError(f"rates: got {self.rates}, expected one or more numbers from 0 to 1")

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        ids, edges = arrays_of(lattice)
        try:
            best_nodes([ids], [edges], [lattice.are_logprobs], [root_id], 1)  # refuses scores that are none
        except FlawError as error:
            refuse_flaw(error)
        shape = _shape(self.rates[: lattice.width], num_nodes, lattice.depth)
        edge_logprobs = lattice.edge_logprobs.numpy()
        tokens, parents, logprobs = [root_id], [-1], [np.float32(0.0)]
        depths, columns = [0], [0]
        number = {0: 0}  # of the shape's places that are filled
        orders: dict[tuple[int, int], NDArray[np.int64]] = {}
        for place, (parent_place, rank) in enumerate(shape, start=1):
            parent = number.get(parent_place)
            if parent is None:
                continue
            depth, row = depths[parent], columns[parent]
            order = orders.get((depth, row))
            if order is None:
                orders[depth, row] = order = np.lexsort((ids[depth], -edges[depth, row]))
            column = int(order[rank])
            if edges[depth, row, column] == -np.inf:
                continue
            number[place] = len(tokens)
            tokens.append(int(ids[depth, column]))
            parents.append(parent)
            logprobs.append(logprobs[parent] + min(edge_logprobs[depth, row, column], np.float32(0.0)))
            depths.append(depth + 1)
            columns.append(column)
        return DraftTree(
            np.array(tokens, np.int64), np.array(parents, np.int64), np.array(logprobs, np.float32)
        )


def expected_tokens(rates: Sequence[float], num_nodes: int, depth: int) -> float:
    """c(n, d): tokens a step of the best shape with at most ``num_nodes`` nodes commits under ``rates``."""
    values, _ = _tables(tuple(rates), num_nodes, depth)
    return float(values.max())


def positional_rates(steps: Iterable[tuple[Lattice, Sequence[int]]], num_ranks: int) -> tuple[float, ...]:
    """Fit p_1 .. p_k on recorded steps.

    From the root on, as long as the true next token is among a node's candidates, the node counts as a visit and the
    token's rank as a hit of that rank; a node without the true token counts as a visit and ends the step.

    Parameters
    ----------
    steps
        A lattice and the tokens that truly followed its root.
    num_ranks
        k.

    Raises
    ------
    ConfigError
        No step has a visited node.
    """
    hits, visits = np.zeros(num_ranks), 0
    for lattice, following in steps:
        ids, edges = arrays_of(lattice)
        row = 0
        for depth, token in zip(range(lattice.depth), following, strict=False):
            scores = edges[depth, row]
            if scores.max() == -np.inf:
                break
            visits += 1
            order = np.lexsort((ids[depth], -scores))
            ranks = np.flatnonzero((ids[depth][order] == token) & (scores[order] > -np.inf))
            if not len(ranks):
                break
            if ranks[0] < num_ranks:
                hits[ranks[0]] += 1
            row = int(order[ranks[0]])
    if not visits:
        raise ConfigError("rates: got no step with a drafted position, expected one or more to fit them on")
    return tuple((hits / visits).tolist())


@lru_cache(maxsize=64)
def _shape(rates: tuple[float, ...], num_nodes: int, depth: int) -> tuple[tuple[int, int], ...]:
    """(place of the parent, rank) of places 1, 2, ..., by falling chance to be accepted; place 0 is the root."""
    values, choices = _tables(rates, num_nodes, depth)
    found: list[tuple[float, int, tuple[int, ...]]] = []  # (-chance, depth, ranks from the root)

    def grow(size: int, levels: int, chance: float, ranks: tuple[int, ...]) -> None:
        found.append((-chance, len(ranks), ranks))
        left = size - 1
        for rank in range(len(rates)):
            share = int(choices[levels, rank, left]) if left else 0
            if share:
                grow(share, levels - 1, chance * rates[rank], (*ranks, rank))
                left -= share

    # More nodes than fit into the depth and the ranks are not to be had.
    grow(int(np.flatnonzero(values == values.max())[0]) + 1, depth, 1.0, ())
    found.sort()
    place = {ranks: index for index, (_, _, ranks) in enumerate(found)}
    return tuple((place[ranks[:-1]], ranks[-1]) for _, _, ranks in found[1:])


def _tables(
    rates: tuple[float, ...], num_nodes: int, depth: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """c(1 .. n, depth), and what the program chose: nodes below rank k when it and the ranks after it share m."""
    values = np.full(num_nodes, -np.inf)
    values[0] = 1.0
    choices = np.zeros((depth + 1, len(rates), num_nodes), np.int64)
    sizes = np.arange(num_nodes)
    rest = sizes[:, None] - sizes[None, :]  # nodes left for the ranks after, by (m, share)
    for level in range(1, depth + 1):
        below = np.concatenate(([0.0], values[:-1]))  # c of 0 .. n-1 nodes
        shared = np.where(sizes == 0, 0.0, -np.inf)
        for rank in reversed(range(len(rates))):
            gain = np.where(below == -np.inf, -np.inf, rates[rank] * np.where(below == -np.inf, 0.0, below))
            totals = np.where(rest >= 0, gain[None, :] + shared[rest], -np.inf)
            choices[level, rank] = totals.argmax(1)
            shared = totals.max(1)
        values = 1.0 + shared
    return values, choices
