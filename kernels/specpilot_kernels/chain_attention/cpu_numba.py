"""The attention on the CPU. Importing this module compiles it.

Every query goes over its own prefix in blocks of 64 tokens that start at token 0, and every sum has one order: a score
is 16 sums over every 16th channel, the denominator 16 sums over every 16th token, an output one sum a block and the
blocks in order. So a row's bits depend on its prefix and on nothing else. Rows are taken 8 at a time: they share a
block's keys and values in the first-level cache. One thread: at 1000 tokens and 8 rows a second one would save 60 us of
240 us (measured).

With a window, a query starts at the first token it sees, and its sums at the multiple of 16 before; blocks stay where
they are.

Inner functions take one-dimensional arrays and offsets, since making a view of an array costs as much as 100
multiply-adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_attention import norm_and_rotate
from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_math import exp, sigmoid
from specpilot_kernels.cpu_vector import (
    LANES,
    add,
    fma,
    largest,
    load,
    maximum,
    splat,
    splat_at,
    store,
    store_one,
    total,
)

__all__ = ["BLOCK_TOKENS", "ROW_CHUNK", "attend"]

BLOCK_TOKENS = 64
ROW_CHUNK = 8
_WIDE = 4 * LANES
_ZERO, _ONE = np.float32(0), np.float32(1)
_LOWEST = np.float32(-np.inf)


@inlined
def _scores(
    query: Any, query_at: int, dim: int, keys: Any, keys_at: int, first: int, last: int, out: Any, out_at: int
) -> None:
    """Products of a query with the keys of tokens ``first`` to ``last - 1``; offsets are those of token 0."""
    token = first
    while token + 4 <= last:
        at = keys_at + token * dim
        a = b = c = d = splat(_ZERO)
        for i in range(0, dim, LANES):
            q = load(query, query_at + i)
            a = fma(q, load(keys, at + i), a)
            b = fma(q, load(keys, at + dim + i), b)
            c = fma(q, load(keys, at + 2 * dim + i), c)
            d = fma(q, load(keys, at + 3 * dim + i), d)
        at = out_at + token
        store_one(out, at, total(a))
        store_one(out, at + 1, total(b))
        store_one(out, at + 2, total(c))
        store_one(out, at + 3, total(d))
        token += 4
    for rest in range(token, last):
        a = splat(_ZERO)
        for i in range(0, dim, LANES):
            a = fma(load(query, query_at + i), load(keys, keys_at + rest * dim + i), a)
        store_one(out, out_at + rest, total(a))


@inlined
def _softmax_numerators(scores: Any, first: int, last: int) -> Any:
    """Turn scores into exp(score - highest); returns their sum. Numbers outside ``first`` to ``last - 1`` become 0."""
    for i in range(first):
        scores[i] = _LOWEST
    for i in range(last, scores.shape[0]):
        scores[i] = _LOWEST
    sixteen = splat(_LOWEST)
    for i in range(0, scores.shape[0], LANES):
        sixteen = maximum(load(scores, i), sixteen)
    highest = largest(sixteen)
    for i in range(scores.shape[0]):
        scores[i] = exp(scores[i] - highest)
    sums = splat(_ZERO)
    for i in range(0, scores.shape[0], LANES):
        sums = add(sums, load(scores, i))
    return total(sums)


@inlined
def _add_values(
    weights: Any,
    weights_at: int,
    values: Any,
    values_at: int,
    dim: int,
    first: int,
    last: int,
    out: Any,
    out_at: int,
) -> None:
    """out += sum of weight times value over tokens ``first`` to ``last - 1``."""
    wide_end = dim - dim % _WIDE
    for i in range(0, wide_end, _WIDE):
        a = b = c = d = splat(_ZERO)
        for token in range(first, last):
            at, weight = values_at + token * dim + i, splat_at(weights, weights_at + token)
            a = fma(weight, load(values, at), a)
            b = fma(weight, load(values, at + LANES), b)
            c = fma(weight, load(values, at + 2 * LANES), c)
            d = fma(weight, load(values, at + 3 * LANES), d)
        at = out_at + i
        store(out, at, add(load(out, at), a))
        store(out, at + LANES, add(load(out, at + LANES), b))
        store(out, at + 2 * LANES, add(load(out, at + 2 * LANES), c))
        store(out, at + 3 * LANES, add(load(out, at + 3 * LANES), d))
    for i in range(wide_end, dim, LANES):
        a = splat(_ZERO)
        for token in range(first, last):
            a = fma(splat_at(weights, weights_at + token), load(values, values_at + token * dim + i), a)
        store(out, out_at + i, add(load(out, out_at + i), a))


@inlined
def _first_seen(token: int, window: int) -> int:
    return max(0, token + 1 - window)


@kernel("void(f4[:,::1], f4[:,:,::1], f4[:,:,::1], i8, f4[:,::1], f4[:,:,::1], f4, b1, i8, f4[:,::1])")
def attend(
    projected: Any,
    keys: Any,
    values: Any,
    position: int,
    scales: Any,
    rotation: Any,
    eps: Any,
    is_block: bool,
    window: int,
    out: Any,
) -> None:
    """Rows go into ``keys`` and ``values`` from ``position`` on and see ``window`` tokens, themselves included.

    A row has gates where ``projected`` is wide enough.
    """
    num_rows, width = out.shape
    num_groups, capacity, dim = keys.shape
    num_heads = width // dim
    per_group = num_heads // num_groups
    gates_at = width + 2 * num_groups * dim
    is_gated = projected.shape[1] > gates_at
    keys_flat, values_flat, out_flat = keys.reshape(-1), values.reshape(-1), out.reshape(-1)
    queries = np.empty(num_rows * width, np.float32)
    for m in range(num_rows):
        row, angles = projected[m], rotation[position + m]
        for head in range(num_heads):
            norm_and_rotate(row, head * dim, scales[head], eps, angles, queries, m * width + head * dim)
        for group in range(num_groups):
            at, cache_at = (num_heads + group) * dim, (group * capacity + position + m) * dim
            norm_and_rotate(row, at, scales[num_heads + group], eps, angles, keys_flat, cache_at)
            for i in range(dim):
                values_flat[cache_at + i] = row[at + num_groups * dim + i]
    # Scores of a chunk of rows with all heads; after the softmax, weights.
    size = (position + num_rows + LANES) // LANES * LANES
    scores = np.empty(min(ROW_CHUNK, num_rows) * num_heads * size, np.float32)
    for start in range(0, num_rows, ROW_CHUNK):
        end = min(start + ROW_CHUNK, num_rows)
        first_block = _first_seen(position + start, window) // BLOCK_TOKENS * BLOCK_TOKENS
        for group in range(num_groups):
            cache_at = group * capacity * dim
            for block in range(first_block, position + (num_rows if is_block else end), BLOCK_TOKENS):
                for m in range(start, end):
                    first = max(block, _first_seen(position + m, window))
                    last = min(block + BLOCK_TOKENS, position + (num_rows if is_block else m + 1))
                    for head in range(group * per_group, (group + 1) * per_group):
                        at, scores_at = m * width + head * dim, ((m - start) * num_heads + head) * size
                        _scores(queries, at, dim, keys_flat, cache_at, first, last, scores, scores_at)
        for m in range(start, end):
            seen = _first_seen(position + m, window)
            before = seen // LANES * LANES
            for head in range(num_heads):
                at = ((m - start) * num_heads + head) * size
                count = position + (num_rows if is_block else m + 1)
                padded = (count + LANES - 1) // LANES * LANES
                row_scores = scores[at + before : at + padded]
                denominator = _softmax_numerators(row_scores, seen - before, count - before)
                # Queries are done with; their place keeps what the sum of values is multiplied by.
                for i in range(head * dim, (head + 1) * dim):
                    gate = sigmoid(projected[m, gates_at + i]) if is_gated else _ONE
                    queries[m * width + i] = gate / denominator
                    out[m, i] = _ZERO
        for group in range(num_groups):
            cache_at = group * capacity * dim
            for block in range(first_block, position + (num_rows if is_block else end), BLOCK_TOKENS):
                for m in range(start, end):
                    first = max(block, _first_seen(position + m, window))
                    last = min(block + BLOCK_TOKENS, position + (num_rows if is_block else m + 1))
                    for head in range(group * per_group, (group + 1) * per_group):
                        at, scores_at = m * width + head * dim, ((m - start) * num_heads + head) * size
                        _add_values(scores, scores_at, values_flat, cache_at, dim, first, last, out_flat, at)
        for i in range(start * width, end * width):
            out_flat[i] *= queries[i]
