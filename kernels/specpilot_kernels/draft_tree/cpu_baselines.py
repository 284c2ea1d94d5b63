"""Kernels of the trees that best-first trees are compared with. Importing this module compiles them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import kernel
from specpilot_kernels.draft_tree.cpu_order import first_flaw, sorted_children

__all__ = ["place", "spread"]


@kernel("i8(i8[:,::1], f4[:,:,::1], b1, f8[:,::1], f4[:,:,::1])")
def spread(ids: Any, edges: Any, are_logprobs: bool, laws: Any, rows: Any) -> Any:
    """Marginal law of every depth, and log of it in place of every possible edge. Returns -1, or where a flaw is."""
    depth, width = ids.shape
    flaw = first_flaw(edges.reshape(-1), width, are_logprobs)
    if flaw >= 0:
        return flaw
    columns, before, weights = np.zeros(width), np.zeros(width), np.empty(width)
    before[0] = 1.0
    for t in range(depth):
        mass = 0.0
        for p in range(width):
            is_known = False
            for c in range(width):
                is_known = is_known or edges[t, p, c] > -np.inf
            if not is_known:
                before[p] = 0.0
            mass += before[p]
        columns[:] = 0.0
        for p in range(width):
            if before[p] == 0.0:
                continue
            shift = 0.0
            if not are_logprobs:
                shift = -np.inf
                for c in range(width):
                    shift = max(shift, np.float64(edges[t, p, c]))
            total = 0.0
            for c in range(width):
                weights[c] = math.exp(np.float64(edges[t, p, c]) - shift)
                total += weights[c]
            scale = before[p] / mass / (1.0 if are_logprobs else total)
            for c in range(width):
                columns[c] += scale * weights[c]
        for c in range(width):
            # A token may have several columns.
            law = 0.0
            for other in range(width):
                if ids[t, other] == ids[t, c]:
                    law += columns[other]
            laws[t, c] = min(law, 1.0)
        before[:] = columns
        for c in range(width):
            log = np.float32(math.log(laws[t, c])) if laws[t, c] > 0.0 else np.float32(-np.inf)
            for p in range(width):
                rows[t, p, c] = log if edges[t, p, c] > -np.inf else np.float32(-np.inf)
    return -1


@kernel("i8(i8[:,::1], f4[:,:,::1], b1, i8, i8[::1], i8[::1], i8[::1], i8[::1], f4[::1])")
def place(
    ids: Any,
    edges: Any,
    are_logprobs: bool,
    root_id: int,
    shape_parents: Any,
    ranks: Any,
    tokens: Any,
    parents: Any,
    logprobs: Any,
) -> Any:
    """Fill the places of a shape with candidates by rank; places without one, and all below them, are left out.

    Returns the number of nodes, or -1 - i for a flaw at edge i.
    """
    width, num_places = ids.shape[1], ranks.shape[0]
    flaw = first_flaw(edges.reshape(-1), width, are_logprobs)
    if flaw >= 0:
        return -1 - flaw
    numbers = np.full(num_places, -1, np.int64)
    depths, columns = np.zeros(num_places, np.int64), np.zeros(num_places, np.int64)
    paths = np.zeros(num_places)
    order, sums = np.empty(width, np.int64), np.empty(width)
    tokens[0], parents[0], logprobs[0], numbers[0] = root_id, -1, 0, 0
    count = 1
    for at in range(1, num_places):
        above = numbers[shape_parents[at]]
        if above < 0:
            continue
        depth = depths[above]
        if depth == ids.shape[0]:
            continue
        found = sorted_children(
            edges[depth, columns[above]], ids[depth], are_logprobs, paths[above], width, order, sums
        )
        rank = ranks[at]
        if rank >= found:
            continue
        numbers[at] = count
        depths[count], columns[count], paths[count] = depth + 1, order[rank], sums[rank]
        tokens[count], parents[count], logprobs[count] = ids[depth, order[rank]], above, sums[rank]
        count += 1
    return count
