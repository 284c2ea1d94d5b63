"""The public functions of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.draft_tree.cpu_numba import beam, check, grow

__all__ = ["FlawError", "beam_tree", "best_nodes", "check_tree"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]
_Tree = tuple[_Ids, _Ids, _Array]

_FLAWS = ("parent", "twin", "logprob")


class FlawError(ValueError):
    """An edge score that is NaN or too large: of request ``request`` at (depth, parent, candidate) ``place``."""

    def __init__(self, request: int, place: tuple[int, int, int], score: float, are_logprobs: bool) -> None:
        expected = "a log-probability, at most 0" if are_logprobs else "a number or minus infinity"
        super().__init__(
            f"lattice of request {request}, edge score at depth {place[0]} from candidate {place[1]} to "
            f"{place[2]}: got {score}, expected {expected}"
        )
        self.request, self.place = request, place


def best_nodes(
    ids: Sequence[_Ids],
    edges: Sequence[_Array],
    are_logprobs: Sequence[bool],
    root_ids: Sequence[int],
    num_nodes: int,
    *,
    max_children: int | None = None,
) -> list[_Tree]:
    """The ``num_nodes`` most likely nodes of all lattices together, as one tree a lattice.

    A node is a path from its lattice's root; its log-probability is the sum of its edges'. Nodes are ordered by
    (log-probability downwards, depth, token, request, place of the parent in this order), which puts parents before
    children: whatever the number of nodes, the first of the order are trees, and of fewer nodes the first of those
    of more. Sums are float64.

    Parameters
    ----------
    ids : sequence of array, int64, (D, K)
        A lattice each; no token twice among the known children of a candidate.
    edges : sequence of array, float32, (D, K, K)
        ``edges[t, p, c]``: candidate c at depth t after candidate p; at depth 0 row 0 counts. Minus infinity
        is never taken.
    are_logprobs
        Whether a lattice's edges are log-probabilities as they stand; else softmax of the row makes them.
    root_ids
    num_nodes
        Of all trees together, roots included, at least one a lattice.
    max_children
        Only so many of a node's best children count.

    Returns
    -------
    list of (token_ids int64 (n,), parents int64 (n,), logprobs float32 (n,))
        Together fewer than ``num_nodes`` where the lattices hold no more.

    Raises
    ------
    FlawError
        An edge is NaN, plus infinity, or a log-probability above 0.
    ValueError
        Shapes, dtypes or numbers are not as stated.
    """
    count = len(root_ids)
    if not len(ids) == len(edges) == len(are_logprobs) == count or not 1 <= count <= num_nodes:
        raise ValueError(
            f"got {len(ids)} ids, {len(edges)} edges, {len(are_logprobs)} flags, {count} roots and num_nodes "
            f"{num_nodes}, expected as many of each, at least 1, and a node or more for each"
        )
    for one, scores in zip(ids, edges, strict=True):
        _check_shapes(one, scores)
    most = num_nodes if max_children is None else max_children
    if most < 1:
        raise ValueError(f"max_children: got {max_children}, expected 1 or more")
    shapes = np.array([(*one.shape, flag) for one, flag in zip(ids, are_logprobs, strict=True)], np.int64)
    all_ids, all_edges = ids[0].reshape(-1), edges[0].reshape(-1)
    if count > 1:
        all_ids = np.concatenate([one.reshape(-1) for one in ids])
        all_edges = np.concatenate([one.reshape(-1) for one in edges])
    owners, tokens, parents = np.empty((3, num_nodes), np.int64)
    logprobs = np.empty(num_nodes, np.float32)
    roots = np.array(root_ids, np.int64)
    size = grow(all_ids, all_edges, shapes, roots, num_nodes, most, owners, tokens, parents, logprobs)
    if size < 0:
        _refuse(-1 - size, edges, are_logprobs)
    if count == 1:
        return [(tokens[:size], parents[:size], logprobs[:size])]
    own = [owners[:size] == request for request in range(count)]
    return [(tokens[:size][one], parents[:size][one], logprobs[:size][one]) for one in own]


def beam_tree(
    ids: _Ids, edges: _Array, root_id: int, num_nodes: int, beam_width: int, *, are_logprobs: bool = False
) -> _Tree:
    """Grow ``beam_width`` children of the ``beam_width`` best nodes of each depth, and keep the best of all grown.

    Parameters and order as in :func:`best_nodes`, ``num_nodes`` and ``beam_width`` 1 or more.

    Returns
    -------
    token_ids : array, int64, (n,)
    parents : array, int64, (n,)
    logprobs : array, float32, (n,)

    Raises
    ------
    FlawError, ValueError
        As :func:`best_nodes`.
    """
    _check_shapes(ids, edges)
    if num_nodes < 1 or beam_width < 1:
        raise ValueError(f"got num_nodes {num_nodes} and beam_width {beam_width}, expected 1 or more")
    tokens, parents = np.empty((2, num_nodes), np.int64)
    logprobs = np.empty(num_nodes, np.float32)
    size = beam(ids, edges, are_logprobs, root_id, num_nodes, beam_width, tokens, parents, logprobs)
    if size < 0:
        _refuse(-1 - size, [edges], [are_logprobs])
    return tokens[:size], parents[:size], logprobs[:size]


def check_tree(token_ids: _Ids, parents: _Ids, logprobs: _Array) -> _Ids:
    """Depths of a tree's nodes, int64, (N,).

    Parameters
    ----------
    token_ids, parents : array, int64, (N,), N >= 1
        ``parents[0] == -1``, ``0 <= parents[i] < i``, no token twice under one parent.
    logprobs : array, float32, (N,)
        Not NaN, none above its parent's.

    Raises
    ------
    ValueError
        Something is not so.
    """
    shape = (len(token_ids),)
    if not len(token_ids) or token_ids.shape != shape or parents.shape != shape or logprobs.shape != shape:
        raise ValueError(
            f"tree: got token_ids {token_ids.shape}, parents {parents.shape}, logprobs {logprobs.shape}, expected (N,) "
            "three times, N at least 1"
        )
    depths = np.empty(len(token_ids), np.int64)
    try:
        flaw = check(token_ids, parents, logprobs, depths)
    except TypeError as error:
        raise ValueError(
            f"tree: got token_ids {token_ids.dtype}, parents {parents.dtype}, logprobs {logprobs.dtype}, expected "
            "writable int64, int64, float32"
        ) from error
    if flaw >= 0:
        node, kind = flaw // 4, _FLAWS[flaw % 4]
        parent = int(parents[node])
        if kind == "parent":
            expected = "-1, a root" if node == 0 else f"0 to {node - 1}"
            raise ValueError(f"tree, parents: got {parent} for node {node}, expected {expected}")
        if kind == "twin":
            raise ValueError(
                f"tree: got token {int(token_ids[node])} twice under node {parent}; expected different tokens"
            )
        raise ValueError(
            f"tree, logprobs: got {float(logprobs[node])} for node {node}, expected a number not above its parent's"
        )
    return depths


def _check_shapes(ids: _Ids, edges: _Array) -> None:
    if ids.ndim != 2 or edges.shape != (*ids.shape, ids.shape[1]):
        raise ValueError(f"got ids {ids.shape} and edges {edges.shape}, expected (D, K) and (D, K, K)")
    if ids.dtype != np.int64 or edges.dtype != np.float32 or not (ids.flags.carray and edges.flags.carray):
        raise ValueError(
            f"got ids {ids.dtype} {ids.strides}, edges {edges.dtype} {edges.strides} (dtype, strides); expected "
            "contiguous writable int64 and float32 arrays"
        )


def _refuse(index: int, edges: Sequence[_Array], are_logprobs: Sequence[bool]) -> NoReturn:
    """Name the edge that stands at ``index`` of all."""
    for request, scores in enumerate(edges):
        if index < scores.size:
            depth, parent, candidate = (int(i) for i in np.unravel_index(index, scores.shape))
            score = float(scores[depth, parent, candidate])
            raise FlawError(request, (depth, parent, candidate), score, are_logprobs[request])
        index -= scores.size
    raise IndexError(f"edge {index} of no lattice")
