"""Candidates and edges on the CPU. Importing this module compiles them."""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_vector import LANES, fma, largest, load, splat, total

__all__ = ["chain", "score", "select"]

_ZERO = np.float32(0)


@inlined
def _insert(values: Any, ids: Any, count: int, value: Any, token: int) -> None:
    """Put a number among ``count`` sorted ones, behind its equals; the last of a full list drops out."""
    at = min(count, values.shape[0] - 1)
    while at > 0 and values[at - 1] < value:
        values[at], ids[at] = values[at - 1], ids[at - 1]
        at -= 1
    values[at], ids[at] = value, token


@kernel("void(f4[:,::1], f4[:,::1], i8[:,::1])")
def select(logits: Any, values: Any, ids: Any) -> None:
    """The largest of every row. Tokens come in order and go behind their equals, so that ties go by token id."""
    num_rows, size = logits.shape
    k = values.shape[1]
    for m in range(num_rows):
        row, best, tokens = logits[m], values[m], ids[m]
        for token in range(k):
            _insert(best, tokens, token, row[token], token)
        token = k
        while token < size:
            if token + LANES <= size and not largest(load(row, token)) > best[k - 1]:
                token += LANES
                continue
            for one in range(token, min(token + LANES, size)):
                if row[one] > best[k - 1]:
                    _insert(best, tokens, k, row[one], one)
            token += LANES


@kernel("void(f4[:,::1], f4[:,::1], i8[:,::1], i8, f4[:,::1], f4[:,::1], f4[:,:,::1])")
def score(
    left: Any, logits: Any, ids: Any, anchor: int, predecessors: Any, successors: Any, out: Any
) -> None:
    """Sixteen sums over every 16th channel for each pair; the rank is a multiple of 16."""
    depth, width = ids.shape
    rank = left.shape[1]
    from_parent = np.empty(width * rank, np.float32)
    successors_flat = successors.reshape(-1)
    for t in range(depth):
        num_parents = width if t else 1
        for p in range(num_parents):
            before = ids[t - 1, p] if t else anchor
            for i in range(rank):
                from_parent[p * rank + i] = predecessors[before, i] * left[t, i]
        for c in range(width):
            at = ids[t, c] * rank
            for p in range(num_parents):
                sums = splat(_ZERO)
                for i in range(0, rank, LANES):
                    sums = fma(load(from_parent, p * rank + i), load(successors_flat, at + i), sums)
                out[t, p, c] = logits[t, c] + total(sums)
        for p in range(num_parents, width):
            for c in range(width):
                out[t, p, c] = out[t, 0, c]


@kernel("void(i8[:,::1], f4[:,:,::1], i8[::1])")
def chain(ids: Any, edges: Any, out: Any) -> None:
    """Best edge after best edge; among equals the lowest token id. -1 from a row on that is all minus infinity."""
    row = 0
    out[:] = -1
    for t in range(ids.shape[0]):
        best = 0
        for c in range(1, ids.shape[1]):
            edge, highest = edges[t, row, c], edges[t, row, best]
            if edge > highest or (edge == highest and ids[t, c] < ids[t, best]):
                best = c
        if edges[t, row, best] == -np.inf:
            return
        row = best
        out[t] = ids[t, best]
