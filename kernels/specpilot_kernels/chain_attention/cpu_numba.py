"""The attention on the CPU. Importing this module compiles it.

Every query goes over its own prefix in blocks of 64 tokens that start at token 0, and every sum has one order: a score
is 16 sums over every 16th channel, the denominator 16 sums over every 16th token, an output one sum a block and the
blocks in order. So a row's bits depend on its prefix and on nothing else. Rows are taken 8 at a time: they share a
block's keys and values in the first-level cache. One thread: at 1000 tokens and 8 rows a second one would save 60 us of
240 us (measured).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    squared_length,
    store,
    total,
)

__all__ = ["BLOCK_TOKENS", "ROW_CHUNK", "attend"]

BLOCK_TOKENS = 64
ROW_CHUNK = 8
_WIDE = 4 * LANES
_ZERO, _ONE = np.float32(0), np.float32(1)
_LOWEST = np.float32(-np.inf)


@inlined
def _norm_and_rotate(
    row: Any, first: int, scale: Any, eps: Any, angles: Any, target: Any, target_first: int
) -> None:
    """One head of one row: norm, then rotation of its leading channel pairs."""
    dim = scale.shape[0]
    length = np.float32(math.sqrt(squared_length(row, first, dim) / np.float32(dim) + eps))
    for i in range(dim):
        target[target_first + i] = row[first + i] / length * scale[i]
    for j in range(angles.shape[0]):
        at = target_first + 2 * j
        a, b = target[at], target[at + 1]
        target[at] = a * angles[j, 0] - b * angles[j, 1]
        target[at + 1] = a * angles[j, 1] + b * angles[j, 0]


@inlined
def _scores(query: Any, keys: Any, first: int, last: int, key_first: int, out: Any) -> None:
    """Products of a query with the keys of tokens ``first`` to ``last - 1``; token 0 lies at ``key_first``."""
    dim = query.shape[0]
    token = first
    while token + 4 <= last:
        at = key_first + token * dim
        a = b = c = d = splat(_ZERO)
        for i in range(0, dim, LANES):
            q = load(query, i)
            a = fma(q, load(keys, at + i), a)
            b = fma(q, load(keys, at + dim + i), b)
            c = fma(q, load(keys, at + 2 * dim + i), c)
            d = fma(q, load(keys, at + 3 * dim + i), d)
        out[token], out[token + 1], out[token + 2], out[token + 3] = total(a), total(b), total(c), total(d)
        token += 4
    for rest in range(token, last):
        a = splat(_ZERO)
        for i in range(0, dim, LANES):
            a = fma(load(query, i), load(keys, key_first + rest * dim + i), a)
        out[rest] = total(a)


@inlined
def _softmax_numerators(scores: Any, count: int) -> Any:
    """Turn scores into exp(score - highest); returns their sum. Numbers up to a multiple of 16 become 0."""
    padded = (count + LANES - 1) // LANES * LANES
    for i in range(count, padded):
        scores[i] = _LOWEST
    sixteen = splat(_LOWEST)
    for i in range(0, padded, LANES):
        sixteen = maximum(load(scores, i), sixteen)
    highest = largest(sixteen)
    for i in range(padded):
        scores[i] = exp(scores[i] - highest)
    sums = splat(_ZERO)
    for i in range(0, padded, LANES):
        sums = add(sums, load(scores, i))
    return total(sums)


@inlined
def _add_values(weights: Any, values: Any, first: int, last: int, value_first: int, out: Any) -> None:
    """out += sum of weight times value over tokens ``first`` to ``last - 1``."""
    dim = out.shape[0]
    for i in range(0, dim - dim % _WIDE, _WIDE):
        a = b = c = d = splat(_ZERO)
        for token in range(first, last):
            at, weight = value_first + token * dim + i, splat(weights[token])
            a = fma(weight, load(values, at), a)
            b = fma(weight, load(values, at + LANES), b)
            c = fma(weight, load(values, at + 2 * LANES), c)
            d = fma(weight, load(values, at + 3 * LANES), d)
        store(out, i, add(load(out, i), a))
        store(out, i + LANES, add(load(out, i + LANES), b))
        store(out, i + 2 * LANES, add(load(out, i + 2 * LANES), c))
        store(out, i + 3 * LANES, add(load(out, i + 3 * LANES), d))
    for i in range(dim - dim % _WIDE, dim, LANES):
        a = splat(_ZERO)
        for token in range(first, last):
            a = fma(splat(weights[token]), load(values, value_first + token * dim + i), a)
        store(out, i, add(load(out, i), a))


@inlined
def _attend_group(
    queries: Any, keys: Any, values: Any, position: int, group: int, gates: Any, out: Any
) -> None:
    """All rows, for the query heads of one key head.

    ``queries`` is (M, heads, d), ``gates`` and ``out`` are (M, heads * d); gates are used up.
    """
    num_rows, num_heads, dim = queries.shape
    num_groups, capacity = keys.shape[:2]
    per_group = num_heads // num_groups
    first_head, group_first = group * per_group, group * capacity * dim
    scores = np.empty((ROW_CHUNK * per_group, position + num_rows + LANES), np.float32)
    for start in range(0, num_rows, ROW_CHUNK):
        end = min(start + ROW_CHUNK, num_rows)
        for block in range(0, position + end, BLOCK_TOKENS):
            for m in range(start, end):
                last = min(block + BLOCK_TOKENS, position + m + 1)
                for r in range(per_group):
                    buffer = scores[(m - start) * per_group + r]
                    _scores(queries[m, first_head + r], keys, block, last, group_first, buffer)
        for m in range(start, end):
            for r in range(per_group):
                buffer = scores[(m - start) * per_group + r]
                inverse = _ONE / _softmax_numerators(buffer, position + m + 1)
                for i in range((first_head + r) * dim, (first_head + r + 1) * dim):
                    out[m, i] = _ZERO
                    gates[m, i] = inverse * sigmoid(gates[m, i])
        for block in range(0, position + end, BLOCK_TOKENS):
            for m in range(start, end):
                last = min(block + BLOCK_TOKENS, position + m + 1)
                for r in range(per_group):
                    at = (first_head + r) * dim
                    buffer = scores[(m - start) * per_group + r]
                    _add_values(buffer, values, block, last, group_first, out[m, at : at + dim])
        for m in range(start, end):
            for i in range(first_head * dim, (first_head + per_group) * dim):
                out[m, i] *= gates[m, i]


@kernel("void(f4[:,::1], f4[:,:,::1], f4[:,:,::1], i8, f4[:,::1], f4[:,:,::1], f4, f4[:,::1])")
def attend(
    projected: Any,
    keys: Any,
    values: Any,
    position: int,
    scales: Any,
    rotation: Any,
    eps: Any,
    out: Any,
) -> None:
    """Rows go into ``keys`` and ``values`` from ``position`` on."""
    num_rows = projected.shape[0]
    num_groups, capacity, dim = keys.shape
    num_heads = out.shape[1] // dim
    queries = np.empty((num_rows, num_heads, dim), np.float32)
    gates = np.empty((num_rows, num_heads * dim), np.float32)
    keys_flat, values_flat = keys.reshape(-1), values.reshape(-1)
    for m in range(num_rows):
        row, angles, queries_row = projected[m], rotation[position + m], queries[m].reshape(-1)
        for head in range(num_heads):
            _norm_and_rotate(row, head * dim, scales[head], eps, angles, queries_row, head * dim)
        for group in range(num_groups):
            at, cache_at = (num_heads + group) * dim, (group * capacity + position + m) * dim
            _norm_and_rotate(row, at, scales[num_heads + group], eps, angles, keys_flat, cache_at)
            for i in range(dim):
                values_flat[cache_at + i] = row[at + num_groups * dim + i]
        for i in range(num_heads * dim):
            gates[m, i] = row[(num_heads + 2 * num_groups) * dim + i]
    for group in range(num_groups):
        _attend_group(queries, keys, values, position, group, gates, out)
