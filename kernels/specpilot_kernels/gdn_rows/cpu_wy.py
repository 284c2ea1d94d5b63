"""The rows of a tree through a head at once: what the committed state says to all of them, then one triangular solve.

With G_i the log decays summed on the path of row i, D_ij = exp(G_i - G_j) for ancestors j of i and for i itself, and
h the committed state, the vectors that rows write and what they read are

    w_i = beta_i (v_i - exp(G_i) k_i h) - sum over ancestors j:  beta_i D_ij (k_i k_j) w_j
    o_i = exp(G_i) q_i h + sum over ancestors j and i itself:    D_ij (q_i k_j) w_j

(TreeWY, https://arxiv.org/abs/2608.20961; the chunked form of Gated DeltaNet is the case of a chain). Rows stand behind
their ancestors, so the system is unit lower triangular and is solved row by row. Only ancestors are visited: rows that
a row does not see have neither an exponential nor a product, so nothing in them can spoil it. Decays stay logarithms
until they are a difference, and the difference is summed from the row upwards: no quotient, no cancellation.

The state is asked twice for each row and written for none, where the walk of the path form
(:mod:`specpilot_kernels.gdn_rows.cpu_block`) writes it row by row. Sums have another order than there, so bits differ
from a chain's; a row's still depend on its root path alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_math import exp
from specpilot_kernels.cpu_vector import LANES, fma, load, mul, splat, splat_at, store, total
from specpilot_kernels.gdn_rows.cpu_block import BLOCK_COLUMNS
from specpilot_kernels.row_tree import DEPTH, PARENT

__all__ = ["decay_products", "key_products", "run_wy"]

_ZERO = np.float32(0)


@inlined
def key_products(tree: Any, queries: Any, keys: Any, products: Any) -> None:
    """Of a group, (2, rows, height): products of a row's key, and of its query, with the key of its path's row at each
    depth. A product is 16 sums of every 16th channel, then the rest singly."""
    num_rows, key_dim = keys.shape
    all_keys, all_queries, whole_end = keys.reshape(-1), queries.reshape(-1), key_dim - key_dim % LANES
    for row in range(num_rows):
        own, ancestor = row * key_dim, row
        for depth in range(tree[row, DEPTH], -1, -1):
            other = ancestor * key_dim
            of_key = of_query = splat(_ZERO)
            for i in range(0, whole_end, LANES):
                key = load(all_keys, other + i)
                of_key = fma(load(all_keys, own + i), key, of_key)
                of_query = fma(load(all_queries, own + i), key, of_query)
            key_product, query_product = total(of_key), total(of_query)
            for i in range(whole_end, key_dim):
                key_product = fma(all_keys[own + i], all_keys[other + i], key_product)
                query_product = fma(all_queries[own + i], all_keys[other + i], query_product)
            products[0, row, depth], products[1, row, depth] = key_product, query_product
            ancestor = tree[ancestor, PARENT]


@inlined
def decay_products(
    tree: Any, products: Any, log_decay: Any, beta: Any, head: int, factors: Any, whole: Any
) -> None:
    """The solve's coefficients of one head, in the form of ``products``; ``whole`` gets the decay of whole paths."""
    for row in range(tree.shape[0]):
        ancestor, logarithm = row, _ZERO
        for depth in range(tree[row, DEPTH], -1, -1):
            ratio = exp(logarithm)
            factors[0, row, depth] = -beta[row, head] * (ratio * products[0, row, depth])
            factors[1, row, depth] = ratio * products[1, row, depth]
            logarithm += log_decay[ancestor, head]
            ancestor = tree[ancestor, PARENT]
        whole[row] = exp(logarithm)


@inlined
def _ask_state(block: Any, queries: Any, keys: Any, knows: Any, reads: Any) -> None:
    """What the committed state says to the keys and the queries of all rows, two rows at a time."""
    num_rows, key_dim = keys.shape
    all_keys, all_queries = keys.reshape(-1), queries.reshape(-1)
    for one in range(0, num_rows, 2):
        two = min(one + 1, num_rows - 1)
        at_one, at_two = one * key_dim, two * key_dim
        know_a = know_b = know_c = know_d = read_a = read_b = read_c = read_d = splat(_ZERO)
        for i in range(key_dim):
            at = i * BLOCK_COLUMNS
            state_0, state_1 = load(block, at), load(block, at + LANES)
            key, query = splat_at(all_keys, at_one + i), splat_at(all_queries, at_one + i)
            know_a, know_b = fma(key, state_0, know_a), fma(key, state_1, know_b)
            read_a, read_b = fma(query, state_0, read_a), fma(query, state_1, read_b)
            key, query = splat_at(all_keys, at_two + i), splat_at(all_queries, at_two + i)
            know_c, know_d = fma(key, state_0, know_c), fma(key, state_1, know_d)
            read_c, read_d = fma(query, state_0, read_c), fma(query, state_1, read_d)
        to_one, to_two = one * BLOCK_COLUMNS, two * BLOCK_COLUMNS
        store(knows, to_one, know_a)
        store(knows, to_one + LANES, know_b)
        store(reads, to_one, read_a)
        store(reads, to_one + LANES, read_b)
        store(knows, to_two, know_c)
        store(knows, to_two + LANES, know_d)
        store(reads, to_two, read_c)
        store(reads, to_two + LANES, read_d)


@inlined
def run_wy(
    block: Any,
    tree: Any,
    queries: Any,
    keys: Any,
    beta: Any,
    head: int,
    factors: Any,
    whole: Any,
    knows: Any,
    written: Any,
    reads: Any,
) -> None:
    """All rows past a block, which stays; ``written`` comes in as the values, ``reads`` is filled.

    ``knows`` is scratch.
    """
    _ask_state(block, queries, keys, knows, reads)
    for row in range(tree.shape[0]):
        at, own = row * BLOCK_COLUMNS, tree[row, DEPTH]
        decay, minus, strength = splat(whole[row]), splat(-whole[row]), splat(beta[row, head])
        w_0 = mul(strength, fma(minus, load(knows, at), load(written, at)))
        w_1 = mul(strength, fma(minus, load(knows, at + LANES), load(written, at + LANES)))
        read_0, read_1 = mul(decay, load(reads, at)), mul(decay, load(reads, at + LANES))
        ancestor = row
        for depth in range(own - 1, -1, -1):
            ancestor = tree[ancestor, PARENT]
            before = ancestor * BLOCK_COLUMNS
            before_0, before_1 = load(written, before), load(written, before + LANES)
            known, read = splat(factors[0, row, depth]), splat(factors[1, row, depth])
            w_0, w_1 = fma(known, before_0, w_0), fma(known, before_1, w_1)
            read_0, read_1 = fma(read, before_0, read_0), fma(read, before_1, read_1)
        store(written, at, w_0)
        store(written, at + LANES, w_1)
        read = splat(factors[1, row, own])
        store(reads, at, fma(read, w_0, read_0))
        store(reads, at + LANES, fma(read, w_1, read_1))
