"""The attention on the CPU. Importing this module compiles it.

Every query goes over its own prefix in blocks of 64 tokens that start at token 0, and every sum has one order: a score
is 16 sums over every 16th channel, the denominator 16 sums over every 16th token, an output one sum a block and the
blocks in order. So a row's bits depend on its prefix and on nothing else. Rows are taken 8 at a time: they share a
block's keys and values in the first-level cache; such chunks of rows with the query
heads of one key head are what threads take. Sequences do not meet.

With a window, a query starts at the first token it sees, and its sums at the multiple of 16 before; blocks stay where
they are.

A row of a tree sees, after the committed tokens, the rows of its path from the root, at the places they would have in a
chain. They lie in the cache by row number, so each of them is looked up; places decide windows, blocks and every sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.chain_attention.cpu_block import (
    add_values,
    add_values_of_two,
    score,
    scores,
    softmax_numerators,
)
from specpilot_kernels.cpu_attention import norm_and_rotate
from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_math import sigmoid
from specpilot_kernels.cpu_memory import floats_at, integers_at
from specpilot_kernels.cpu_pool import job_of, run_parts
from specpilot_kernels.cpu_vector import LANES
from specpilot_kernels.row_tree import DEPTH, NUM_COLUMNS, PARENT

__all__ = ["BLOCK_TOKENS", "ROW_CHUNK", "attend"]

BLOCK_TOKENS = 64
ROW_CHUNK = 8
_ZERO, _ONE = np.float32(0), np.float32(1)


@inlined
def _first_seen(token: int, window: int) -> int:
    return max(0, token + 1 - window)


@inlined
def _look_up_paths(tree: Any, row: int, num_rows: int, position: int, places: Any) -> Any:
    """Where in the cache the tokens lie that rows of a tree see after the first ``position``: (rows, height).

    ``places`` gets where the rows stand: the root at ``position``, the others by their depth.
    """
    height = 1
    for m in range(num_rows):
        height = max(height, tree[row + m, DEPTH] + 1)
    slots = np.empty((num_rows, height), np.int64)
    for m in range(num_rows):
        at = row + m
        places[m] = position + tree[at, DEPTH]
        for depth in range(tree[at, DEPTH], -1, -1):
            slots[m, depth] = position + at
            at = tree[at, PARENT]
    return slots


@inlined
def _attend_chunk(
    queries: Any,
    projected: Any,
    keys: Any,
    values: Any,
    num_groups: int,
    group: int,
    dim: int,
    capacity: int,
    row: int,
    num_rows: int,
    position: int,
    count: int,
    start: int,
    tree: Any,
    is_block: bool,
    window: int,
    out: Any,
) -> None:
    """Rows ``row`` to ``row + num_rows - 1``, those from ``start`` on of a sequence's ``count`` rows, in the query
    heads of key head ``group``.

    The sequence's first row stands at ``position``. ``tree`` has no rows for a chain. A row has gates where
    ``projected`` is wide enough.
    """
    places, ends = np.empty(num_rows, np.int64), np.empty(num_rows, np.int64)
    if tree.shape[0] > 0:
        slots, in_order = _look_up_paths(tree, start, num_rows, position, places), position
    else:
        slots, in_order = np.empty((0, 0), np.int64), position + count
        for m in range(num_rows):
            places[m] = position + start + m
    for m in range(num_rows):
        ends[m] = position + count if is_block else places[m] + 1
    width = out.shape[1]
    num_heads = width // dim
    per_group = num_heads // num_groups
    gates_at = width + 2 * num_groups * dim
    is_gated = projected.shape[1] > gates_at
    end, lowest = ends[0], places[0]
    for m in range(1, num_rows):
        end, lowest = max(end, ends[m]), min(lowest, places[m])
    first_block = _first_seen(lowest, window) // BLOCK_TOKENS * BLOCK_TOKENS
    # Scores of all rows and heads; after the softmax, weights.
    size = (end + LANES) // LANES * LANES
    weights = np.empty(num_rows * per_group * size, np.float32)
    out_flat, slots_flat, height = out.reshape(-1), slots.reshape(-1), slots.shape[1]
    first_head, end_head = group * per_group, (group + 1) * per_group
    cache_at = group * capacity * dim
    for block in range(first_block, end, BLOCK_TOKENS):
        for m in range(num_rows):
            first = max(block, _first_seen(places[m], window))
            last = min(block + BLOCK_TOKENS, ends[m])
            stem, slots_at = min(last, in_order), m * height - in_order
            for head in range(first_head, end_head):
                at = (row + m) * width + head * dim
                scores_at = (m * per_group + head - first_head) * size
                scores(queries, at, dim, keys, cache_at, first, stem, weights, scores_at)
                for token in range(max(first, stem), last):
                    key_at = cache_at + slots_flat[slots_at + token] * dim
                    score(queries, at, dim, keys, key_at, weights, scores_at + token)
    for m in range(num_rows):
        seen = _first_seen(places[m], window)
        before = seen // LANES * LANES
        for head in range(first_head, end_head):
            at, count = (m * per_group + head - first_head) * size, ends[m]
            padded = (count + LANES - 1) // LANES * LANES
            row_scores = weights[at + before : at + padded]
            denominator = softmax_numerators(row_scores, seen - before, count - before)
            # Queries are done with; their place keeps what the sum of values is multiplied by.
            for i in range(head * dim, (head + 1) * dim):
                gate = sigmoid(projected[row + m, gates_at + i]) if is_gated else _ONE
                queries[(row + m) * width + i] = gate / denominator
                out[row + m, i] = _ZERO
    for block in range(first_block, end, BLOCK_TOKENS):
        for m in range(num_rows):
            first = max(block, _first_seen(places[m], window))
            last = min(block + BLOCK_TOKENS, ends[m])
            stem, slots_at = min(last, in_order), m * height - in_order
            head = first_head
            while head < end_head:
                at = (row + m) * width + head * dim
                scores_at = (m * per_group + head - first_head) * size
                if head + 1 < end_head:
                    add_values_of_two(
                        weights,
                        scores_at,
                        size,
                        values,
                        cache_at,
                        dim,
                        first,
                        stem,
                        last,
                        slots_flat,
                        slots_at,
                        out_flat,
                        at,
                    )
                else:
                    add_values(
                        weights,
                        scores_at,
                        values,
                        cache_at,
                        dim,
                        first,
                        stem,
                        last,
                        slots_flat,
                        slots_at,
                        out_flat,
                        at,
                    )
                head += 2
    for m in range(num_rows):
        at = (row + m) * width
        for i in range(at + first_head * dim, at + end_head * dim):
            out_flat[i] *= queries[i]


@inlined
def _attend_one(
    unit: int,
    queries: Any,
    projected: Any,
    segments: Any,
    chunks: Any,
    num_groups: int,
    dim: int,
    is_block: bool,
    window: int,
    out: Any,
) -> None:
    chunk, group = unit // num_groups, unit % num_groups
    s, start = chunks[chunk, 0], chunks[chunk, 1]
    count, position, capacity = segments[s, 1], segments[s, 2], segments[s, 5]
    _attend_chunk(
        queries,
        projected,
        floats_at(segments[s, 3], num_groups * capacity * dim),
        floats_at(segments[s, 4], num_groups * capacity * dim),
        num_groups,
        group,
        dim,
        capacity,
        segments[s, 0] + start,
        min(ROW_CHUNK, count - start),
        position,
        count,
        start,
        integers_at(segments[s, 6], count if segments[s, 6] != 0 else 0, NUM_COLUMNS),
        is_block,
        window,
        out,
    )


@kernel(
    "void(f4[:,::1], i8[:,::1], i8, f4[:,::1], f4[:,:,::1], f4, b1, i8, f4[:,::1], i8)",
)
def attend(
    projected: Any,
    segments: Any,
    num_groups: int,
    scales: Any,
    rotation: Any,
    eps: Any,
    is_block: bool,
    window: int,
    out: Any,
    pool: int,
) -> None:
    """One layer; a row sees ``window`` tokens of its sequence up to its own, or to its sequence's last one in a block.

    ``segments`` is the layer's table of :class:`specpilot_kernels.chain_attention.memory.KvSegments`.
    """
    width, dim = out.shape[1], scales.shape[1]
    num_heads = width // dim
    queries = np.empty(out.size, np.float32)
    num_chunks = 0
    for s in range(segments.shape[0]):
        num_chunks += (segments[s, 1] + ROW_CHUNK - 1) // ROW_CHUNK
    chunks = np.empty((num_chunks, 2), np.int64)
    chunk = 0
    for s in range(segments.shape[0]):
        first, count, position, capacity = segments[s, 0], segments[s, 1], segments[s, 2], segments[s, 5]
        keys = floats_at(segments[s, 3], num_groups * capacity * dim)
        values = floats_at(segments[s, 4], num_groups * capacity * dim)
        is_tree = segments[s, 6] != 0
        tree = integers_at(segments[s, 6], count if is_tree else 0, NUM_COLUMNS)
        for m in range(count):
            row, angles = projected[first + m], rotation[position + (tree[m, DEPTH] if is_tree else m)]
            for head in range(num_heads):
                at = (first + m) * width + head * dim
                norm_and_rotate(row, head * dim, scales[head], eps, angles, queries, at)
            for group in range(num_groups):
                at, cache_at = (num_heads + group) * dim, (group * capacity + position + m) * dim
                norm_and_rotate(row, at, scales[num_heads + group], eps, angles, keys, cache_at)
                for i in range(dim):
                    values[cache_at + i] = row[at + num_groups * dim + i]
        for start in range(0, count, ROW_CHUNK):
            chunks[chunk, 0], chunks[chunk, 1] = s, start
            chunk += 1
    work = queries, projected, segments, chunks, num_groups, dim, is_block, window, out
    num_units = num_chunks * num_groups
    run_parts(pool, job_of(_attend_one, work), num_units)
