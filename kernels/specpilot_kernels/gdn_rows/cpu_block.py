"""The inner loops of the recurrence: rows through 32 columns of a state that stay in the first-level cache.

All sums are in registers. One pass over the block writes a row, reads it out, and reads what the state then knows of
the next row's key. A tree costs as many passes: a leaf's state is read out and not kept, so its sibling finds the
parent's where it was, and is asked for in the same pass. Only where two subtrees hang on one row is a pass more needed
for the second one, and another block for what the first one leaves behind (:mod:`specpilot_kernels.row_tree`).

A sum's order depends on the row alone, so a row of a tree has the bits that its root path has as a chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_vector import LANES, fma, load, mul, splat, store
from specpilot_kernels.row_tree import CARRIES, NODE, SOURCE, TARGET

__all__ = ["BLOCK_COLUMNS", "put_columns", "run_chain", "run_tree", "take_columns", "write"]

BLOCK_COLUMNS = 2 * LANES
_ZERO = np.float32(0)


@inlined
def write(before: Any, factor: Any, key: Any, written: Any) -> Any:
    """Numbers of the state after a write, 16 or one; the one place that decides how a write rounds."""
    return fma(key, written, mul(factor, before))


@inlined
def take_columns(source: Any, offset: int, stride: int, count: int, block: Any) -> None:
    """Copy ``count`` columns of a matrix from ``offset`` on into a block of 32; the block's others become zero."""
    if count >= BLOCK_COLUMNS:
        for at in range(0, block.shape[0], BLOCK_COLUMNS):
            store(block, at, load(source, offset))
            store(block, at + LANES, load(source, offset + LANES))
            offset += stride
    else:
        for at in range(0, block.shape[0], BLOCK_COLUMNS):
            for j in range(BLOCK_COLUMNS):
                block[at + j] = source[offset + j] if j < count else _ZERO
            offset += stride


@inlined
def put_columns(target: Any, offset: int, stride: int, count: int, block: Any) -> None:
    if count >= BLOCK_COLUMNS:
        for at in range(0, block.shape[0], BLOCK_COLUMNS):
            store(target, offset, load(block, at))
            store(target, offset + LANES, load(block, at + LANES))
            offset += stride
    else:
        for at in range(0, block.shape[0], BLOCK_COLUMNS):
            for j in range(count):
                target[offset + j] = block[at + j]
            offset += stride


@inlined
def run_chain(
    block: Any, queries: Any, keys: Any, decay: Any, beta: Any, head: int, written: Any, reads: Any
) -> None:
    """All rows through a block, which is advanced; ``written`` comes in as the values, and ``reads`` is filled."""
    num_rows, key_dim = keys.shape
    known_0 = known_1 = splat(_ZERO)
    for i in range(key_dim):
        k, at = splat(keys[0, i]), i * BLOCK_COLUMNS
        known_0 = fma(k, load(block, at), known_0)
        known_1 = fma(k, load(block, at + LANES), known_1)
    for t in range(num_rows):
        row = t * BLOCK_COLUMNS
        factor, minus, strength = splat(decay[t, head]), splat(-decay[t, head]), splat(beta[t, head])
        w_0 = mul(strength, fma(minus, known_0, load(written, row)))
        w_1 = mul(strength, fma(minus, known_1, load(written, row + LANES)))
        store(written, row, w_0)
        store(written, row + LANES, w_1)
        after = min(t + 1, num_rows - 1)
        read_0 = read_1 = known_0 = known_1 = splat(_ZERO)
        # One pass: write this row, read it out, and read what the state knows of the next row's key.
        for i in range(key_dim):
            k, q, next_k = splat(keys[t, i]), splat(queries[t, i]), splat(keys[after, i])
            at = i * BLOCK_COLUMNS
            state_0 = write(load(block, at), factor, k, w_0)
            state_1 = write(load(block, at + LANES), factor, k, w_1)
            store(block, at, state_0)
            store(block, at + LANES, state_1)
            read_0, read_1 = fma(q, state_0, read_0), fma(q, state_1, read_1)
            known_0, known_1 = fma(next_k, state_0, known_0), fma(next_k, state_1, known_1)
        store(reads, row, read_0)
        store(reads, row + LANES, read_1)


@inlined
def run_tree(
    blocks: Any,
    tree: Any,
    queries: Any,
    keys: Any,
    decay: Any,
    beta: Any,
    head: int,
    written: Any,
    reads: Any,
) -> None:
    """:func:`run_chain` for the rows of a tree. ``blocks`` has one block a slot; the first comes in as the state."""
    num_rows, key_dim = keys.shape
    slot_size = key_dim * BLOCK_COLUMNS
    known_0 = known_1 = splat(_ZERO)
    is_known = False
    for step in range(num_rows):
        node = tree[step, NODE]
        source, target = tree[step, SOURCE] * slot_size, tree[step, TARGET] * slot_size
        if not is_known:
            known_0 = known_1 = splat(_ZERO)
            for i in range(key_dim):
                k, at = splat(keys[node, i]), source + i * BLOCK_COLUMNS
                known_0 = fma(k, load(blocks, at), known_0)
                known_1 = fma(k, load(blocks, at + LANES), known_1)
        is_known = tree[step, CARRIES] != 0
        row = node * BLOCK_COLUMNS
        factor, minus, strength = splat(decay[node, head]), splat(-decay[node, head]), splat(beta[node, head])
        w_0 = mul(strength, fma(minus, known_0, load(written, row)))
        w_1 = mul(strength, fma(minus, known_1, load(written, row + LANES)))
        store(written, row, w_0)
        store(written, row + LANES, w_1)
        after = tree[min(step + 1, num_rows - 1), NODE]
        read_0 = read_1 = known_0 = known_1 = splat(_ZERO)
        if target < 0:
            for i in range(key_dim):
                k, q, next_k = splat(keys[node, i]), splat(queries[node, i]), splat(keys[after, i])
                at = source + i * BLOCK_COLUMNS
                before_0, before_1 = load(blocks, at), load(blocks, at + LANES)
                read_0 = fma(q, write(before_0, factor, k, w_0), read_0)
                read_1 = fma(q, write(before_1, factor, k, w_1), read_1)
                known_0, known_1 = fma(next_k, before_0, known_0), fma(next_k, before_1, known_1)
        else:
            for i in range(key_dim):
                k, q, next_k = splat(keys[node, i]), splat(queries[node, i]), splat(keys[after, i])
                at, to = source + i * BLOCK_COLUMNS, target + i * BLOCK_COLUMNS
                state_0 = write(load(blocks, at), factor, k, w_0)
                state_1 = write(load(blocks, at + LANES), factor, k, w_1)
                store(blocks, to, state_0)
                store(blocks, to + LANES, state_1)
                read_0, read_1 = fma(q, state_0, read_0), fma(q, state_1, read_1)
                known_0, known_1 = fma(next_k, state_0, known_0), fma(next_k, state_1, known_1)
        store(reads, row, read_0)
        store(reads, row + LANES, read_1)
