"""Scores of a node's children and their order, which the kernels of trees share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined

__all__ = ["first_flaw", "sorted_children"]


@inlined
def first_flaw(edges: Any, width: int, are_logprobs: bool) -> Any:
    """Index of the first edge score that is no score, or -1. At depth 0 only row 0 has a meaning."""
    flaws = 0
    # Counted without a branch, so that the loop runs on vectors; the place is looked for only when there is one.
    if are_logprobs:
        for i in range(edges.shape[0]):
            flaws += not edges[i] <= 0.0
    else:
        for i in range(edges.shape[0]):
            flaws += not edges[i] < np.inf
    if flaws:
        for i in range(edges.shape[0]):
            is_flaw = not edges[i] <= 0.0 if are_logprobs else not edges[i] < np.inf
            if is_flaw and (i < width or i >= width * width):
                return i
    return -1


@inlined
def sorted_children(
    edges: Any, ids: Any, are_logprobs: bool, path: float, most: int, columns: Any, sums: Any
) -> Any:
    """Log-probabilities of the paths over a row's candidates, highest first, equal ones by token.

    Writes at most ``most`` of them and returns how many; those of minus infinity are left out.
    """
    highest = -np.inf
    for c in range(edges.shape[0]):
        highest = max(highest, np.float64(edges[c]))
    if highest == -np.inf:
        return 0
    normalizer = 0.0
    if not are_logprobs:
        total = 0.0
        for c in range(edges.shape[0]):
            total += math.exp(np.float64(edges[c]) - highest)
        normalizer = highest + math.log(total)
    count = 0
    for c in range(edges.shape[0]):
        if edges[c] == -np.inf:
            continue
        value, token = path + (np.float64(edges[c]) - normalizer), ids[c]
        at = count
        while at > 0 and (sums[at - 1] < value or (sums[at - 1] == value and ids[columns[at - 1]] > token)):
            if at < most:
                sums[at], columns[at] = sums[at - 1], columns[at - 1]
            at -= 1
        if at < most:
            sums[at], columns[at] = value, c
            count = min(count + 1, most)
    return count
