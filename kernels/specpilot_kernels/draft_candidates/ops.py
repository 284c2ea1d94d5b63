"""The public functions from logits to a chain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_vector import LANES
from specpilot_kernels.draft_candidates.cpu_numba import chain, score, select

__all__ = ["greedy_chain", "pair_scores", "top_candidates"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]


def top_candidates(logits: _Array, k: int) -> tuple[_Array, _Ids]:
    """The k largest numbers of each row with their indices, largest first, equal ones by index.

    Parameters
    ----------
    logits : array, float32, (R, V), contiguous
        No NaN.
    k
        1 <= k <= V.

    Returns
    -------
    values : array, float32, (R, k)
    ids : array, int64, (R, k)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    if logits.ndim != 2 or not 1 <= k <= logits.shape[1]:
        raise ValueError(f"got logits {logits.shape} and k {k}, expected (R, V) and 1 <= k <= V")
    values, ids = np.empty((len(logits), k), np.float32), np.empty((len(logits), k), np.int64)
    try:
        select(logits, values, ids)
    except TypeError as error:
        raise ValueError(
            f"logits: got {logits.dtype} with strides {logits.strides}, expected a contiguous float32 array"
        ) from error
    return values, ids


def pair_scores(
    left: _Array, logits: _Array, ids: _Ids, anchor_id: int, predecessors: _Array, successors: _Array
) -> _Array:
    """Edge scores of a lattice with a low-rank term for neighbours.

        out[t, p, c] = logits[t, c] + sum over i of predecessors[a, i] left[t, i] successors[ids[t, c], i]

    with a = ids[t - 1, p], and the anchor for all p at t = 0. All arrays are contiguous, ids below V (not checked).

    Parameters
    ----------
    left : array, float32, (D, r)
        What a position contributes; r is a multiple of 16.
    logits, ids : array, float32 and int64, (D, K)
    predecessors, successors : array, float32, (V, r)

    Returns
    -------
    array, float32, (D, K, K)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    rank = left.shape[1]
    if (
        rank % LANES
        or logits.shape != ids.shape
        or len(left) != len(ids)
        or predecessors.shape != successors.shape
        or predecessors.shape[1] != rank
        or not 0 <= anchor_id < len(predecessors)
    ):
        raise ValueError(
            f"got left {left.shape}, logits {logits.shape}, ids {ids.shape}, anchor {anchor_id}, predecessors "
            f"{predecessors.shape}, successors {successors.shape}; expected (D, r), twice (D, K), an id below V, twice "
            f"(V, r), r a multiple of {LANES}"
        )
    out = np.empty((*ids.shape, ids.shape[1]), np.float32)
    try:
        score(left, logits, ids, anchor_id, predecessors, successors, out)
    except TypeError as error:
        names = ("left", "logits", "ids", "predecessors", "successors")
        arrays: tuple[NDArray[Any], ...] = (left, logits, ids, predecessors, successors)
        got = ", ".join(
            f"{name} {array.dtype} {array.strides}" for name, array in zip(names, arrays, strict=True)
        )
        raise ValueError(f"got {got} (dtype, strides); expected contiguous float32 and int64") from error
    return out


def greedy_chain(ids: _Ids, edges: _Array) -> _Ids:
    """Follow the best edge from the root; among equal scores the lowest token id.

    Where all edges are minus infinity nothing is known to follow: from there on the ids are -1.

    Parameters
    ----------
    ids : array, int64, (D, K), contiguous
    edges : array, float32, (D, K, K), contiguous
        Score of candidate c at depth t after candidate p: ``edges[t, p, c]``; at depth 0 row 0 counts.

    Returns
    -------
    array, int64, (D,)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    if edges.shape != (*ids.shape, ids.shape[1]):
        raise ValueError(f"got ids {ids.shape} and edges {edges.shape}, expected (D, K) and (D, K, K)")
    out = np.empty(len(ids), np.int64)
    try:
        chain(ids, edges, out)
    except TypeError as error:
        raise ValueError(
            f"got ids {ids.dtype} {ids.strides}, edges {edges.dtype} {edges.strides} (dtype, strides); expected "
            "contiguous int64 and float32 arrays"
        ) from error
    return out
