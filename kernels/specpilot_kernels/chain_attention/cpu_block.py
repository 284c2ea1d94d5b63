"""The sums of attention over one block of a cache.

Tokens before ``stem`` lie in the cache in order; those from ``stem`` on, the rows of a tree's path, are looked up.

Functions take one-dimensional arrays and offsets, since making a view of an array costs as much as 100 multiply-adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.chain_attention.cpu_dots import KEYS_AT_ONCE, dots
from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_math import exp
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

__all__ = ["add_values", "add_values_of_two", "score", "scores", "softmax_numerators"]

_WIDE = 4 * LANES
_ZERO = np.float32(0)
_LOWEST = np.float32(-np.inf)


@inlined
def scores(
    query: Any, query_at: int, dim: int, keys: Any, keys_at: int, first: int, last: int, out: Any, out_at: int
) -> None:
    """Products of a query with the keys of tokens ``first`` to ``last - 1``; offsets are those of token 0."""
    token = first
    while token + KEYS_AT_ONCE <= last:
        dots(query, query_at, dim, keys, keys_at + token * dim, out, out_at + token)
        token += KEYS_AT_ONCE
    for rest in range(token, last):
        score(query, query_at, dim, keys, keys_at + rest * dim, out, out_at + rest)


@inlined
def score(query: Any, query_at: int, dim: int, keys: Any, key_at: int, out: Any, out_at: int) -> None:
    a = splat(_ZERO)
    for i in range(0, dim, LANES):
        a = fma(load(query, query_at + i), load(keys, key_at + i), a)
    store_one(out, out_at, total(a))


@inlined
def softmax_numerators(scores: Any, first: int, last: int) -> Any:
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
def add_values(
    weights: Any,
    weights_at: int,
    values: Any,
    values_at: int,
    dim: int,
    first: int,
    stem: int,
    last: int,
    slots: Any,
    slots_at: int,
    out: Any,
    out_at: int,
) -> None:
    """out += sum of weight times value over tokens ``first`` to ``last - 1``, those from ``stem`` on by their slots."""
    looked_up = max(first, stem)
    for i in range(0, dim - dim % _WIDE, _WIDE):
        a = b = c = d = splat(_ZERO)
        for token in range(first, stem):
            at, weight = values_at + token * dim + i, splat_at(weights, weights_at + token)
            a = fma(weight, load(values, at), a)
            b = fma(weight, load(values, at + LANES), b)
            c = fma(weight, load(values, at + 2 * LANES), c)
            d = fma(weight, load(values, at + 3 * LANES), d)
        for token in range(looked_up, last):
            at, weight = values_at + slots[slots_at + token] * dim + i, splat_at(weights, weights_at + token)
            a = fma(weight, load(values, at), a)
            b = fma(weight, load(values, at + LANES), b)
            c = fma(weight, load(values, at + 2 * LANES), c)
            d = fma(weight, load(values, at + 3 * LANES), d)
        _add_wide(out, out_at + i, a, b, c, d)
    _add_rest(weights, weights_at, values, values_at, dim, first, stem, last, slots, slots_at, out, out_at)


@inlined
def add_values_of_two(
    weights: Any,
    weights_at: int,
    weights_step: int,
    values: Any,
    values_at: int,
    dim: int,
    first: int,
    stem: int,
    last: int,
    slots: Any,
    slots_at: int,
    out: Any,
    out_at: int,
) -> None:
    """:func:`add_values` for two heads of one row with the same values, ``weights_step`` and ``dim`` apart.

    Each sum waits for the product before it, so one head's four leave half of a core idle: two heads took 0.8 of one
    head's time with AVX-512 and 1.7 of it with AVX2 (measured).
    """
    looked_up, other_at = max(first, stem), weights_at + weights_step
    for i in range(0, dim - dim % _WIDE, _WIDE):
        a = b = c = d = e = f = g = h = splat(_ZERO)
        for token in range(first, stem):
            at = values_at + token * dim + i
            weight, other = splat_at(weights, weights_at + token), splat_at(weights, other_at + token)
            value = load(values, at)
            a, e = fma(weight, value, a), fma(other, value, e)
            value = load(values, at + LANES)
            b, f = fma(weight, value, b), fma(other, value, f)
            value = load(values, at + 2 * LANES)
            c, g = fma(weight, value, c), fma(other, value, g)
            value = load(values, at + 3 * LANES)
            d, h = fma(weight, value, d), fma(other, value, h)
        for token in range(looked_up, last):
            at = values_at + slots[slots_at + token] * dim + i
            weight, other = splat_at(weights, weights_at + token), splat_at(weights, other_at + token)
            value = load(values, at)
            a, e = fma(weight, value, a), fma(other, value, e)
            value = load(values, at + LANES)
            b, f = fma(weight, value, b), fma(other, value, f)
            value = load(values, at + 2 * LANES)
            c, g = fma(weight, value, c), fma(other, value, g)
            value = load(values, at + 3 * LANES)
            d, h = fma(weight, value, d), fma(other, value, h)
        _add_wide(out, out_at + i, a, b, c, d)
        _add_wide(out, out_at + dim + i, e, f, g, h)
    _add_rest(weights, weights_at, values, values_at, dim, first, stem, last, slots, slots_at, out, out_at)
    _add_rest(
        weights, other_at, values, values_at, dim, first, stem, last, slots, slots_at, out, out_at + dim
    )


@inlined
def _add_wide(out: Any, at: int, a: Any, b: Any, c: Any, d: Any) -> None:
    store(out, at, add(load(out, at), a))
    store(out, at + LANES, add(load(out, at + LANES), b))
    store(out, at + 2 * LANES, add(load(out, at + 2 * LANES), c))
    store(out, at + 3 * LANES, add(load(out, at + 3 * LANES), d))


@inlined
def _add_rest(
    weights: Any,
    weights_at: int,
    values: Any,
    values_at: int,
    dim: int,
    first: int,
    stem: int,
    last: int,
    slots: Any,
    slots_at: int,
    out: Any,
    out_at: int,
) -> None:
    """The channels behind the last whole 64."""
    for i in range(dim - dim % _WIDE, dim, LANES):
        a = splat(_ZERO)
        for token in range(first, stem):
            a = fma(splat_at(weights, weights_at + token), load(values, values_at + token * dim + i), a)
        for token in range(max(first, stem), last):
            at = values_at + slots[slots_at + token] * dim + i
            a = fma(splat_at(weights, weights_at + token), load(values, at), a)
        store(out, out_at + i, add(load(out, out_at + i), a))
