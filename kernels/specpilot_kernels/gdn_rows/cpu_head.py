"""What rows bring to the recurrence, one head's way through it, and the replay of decided rows.

The columns of a state do not depend on each other, given keys and queries. So 32 columns at a time go through all rows
(:mod:`specpilot_kernels.gdn_rows.cpu_block`). Every sum has one order, so a row's bits depend on the rows before it (in
a tree: its ancestors) and on nothing else, and replayed rows are bit for bit the state that running them alone would
have left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_math import exp, sigmoid, silu, softplus
from specpilot_kernels.cpu_vector import LANES, load, splat, squared_length, store
from specpilot_kernels.gdn_rows.cpu_block import (
    BLOCK_COLUMNS,
    put_columns,
    run_chain,
    run_tree,
    take_columns,
    write,
)
from specpilot_kernels.gdn_rows.cpu_wy import decay_products, run_wy
from specpilot_kernels.row_tree import PARENT

__all__ = ["prepare", "replay_head", "run_head"]

_ONE = np.float32(1)


@inlined
def _activate(inputs: Any, taps: Any, sources: Any, activated: Any) -> None:
    """silu(convolution) of one row, whose inputs lie in the rows ``sources``, oldest first."""
    source = sources[0]
    for c in range(taps.shape[1]):
        activated[c] = inputs[source, c] * taps[0, c]
    for tap in range(1, taps.shape[0]):
        source = sources[tap]
        for c in range(taps.shape[1]):
            activated[c] += inputs[source, c] * taps[tap, c]
    for c in range(taps.shape[1]):
        activated[c] = silu(activated[c])


@inlined
def _scale(values: Any, factor: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = values[i] * factor


@inlined
def _norm_and_gate(row: Any, weight: Any, eps: Any, gate: Any) -> None:
    """rms_norm(row) weight silu(gate), in place."""
    length = np.float32(math.sqrt(squared_length(row, 0, row.shape[0]) / np.float32(row.shape[0]) + eps))
    for j in range(row.shape[0]):
        row[j] = row[j] / length * weight[j] * silu(gate[j])


@inlined
def prepare(
    projected: Any,
    first: int,
    tree: Any,
    window: Any,
    taps: Any,
    rate: Any,
    dt_bias: Any,
    unit_eps: Any,
    inputs: Any,
    queries: Any,
    keys: Any,
    written: Any,
    log_decay: Any,
    decay: Any,
    beta: Any,
) -> None:
    """What the rows of one sequence bring to the recurrence; values go into ``written``. Rows start at ``first``.

    ``tree`` has no rows for a chain. The window of a tree's row is gathered along its ancestors.
    """
    num_groups, num_rows, key_dim = keys.shape
    width, per_group = written.shape[2], decay.shape[2]
    num_before, num_channels = taps.shape[0] - 1, taps.shape[1]
    a_at = projected.shape[1] - num_groups * per_group
    b_at = a_at - num_groups * per_group
    for i in range(num_before):
        for c in range(num_channels):
            inputs[i, c] = window[i * num_channels + c]
    for t in range(num_rows):
        for c in range(num_channels):
            inputs[num_before + t, c] = projected[first + t, c]
    query_scale = np.float32(1.0 / math.sqrt(key_dim))
    activated, sources = np.empty(num_channels, np.float32), np.empty(num_before + 1, np.int64)
    is_tree = tree.shape[0] > 0
    for t in range(num_rows):
        # Row -1 is the last decided one, whose input stands at num_before - 1.
        ancestor = t
        for tap in range(num_before, -1, -1):
            sources[tap] = num_before + ancestor
            ancestor = tree[ancestor, PARENT] if is_tree and ancestor >= 0 else ancestor - 1
        _activate(inputs, taps, sources, activated)
        row = projected[first + t]
        for group in range(num_groups):
            at = 2 * group * key_dim
            unit_q = query_scale / np.float32(math.sqrt(squared_length(activated, at, key_dim) + unit_eps))
            unit_k = _ONE / np.float32(math.sqrt(squared_length(activated, at + key_dim, key_dim) + unit_eps))
            _scale(activated[at : at + key_dim], unit_q, queries[group, t])
            _scale(activated[at + key_dim : at + 2 * key_dim], unit_k, keys[group, t])
            at = 2 * num_groups * key_dim + group * width
            _scale(activated[at : at + width], _ONE, written[group, t])
            for r in range(per_group):
                head = group * per_group + r
                log_decay[group, t, r] = rate[head] * softplus(row[a_at + head] + dt_bias[head])
                decay[group, t, r] = exp(log_decay[group, t, r])
                beta[group, t, r] = sigmoid(row[b_at + head])


@inlined
def run_head(
    state: Any,
    is_decided: bool,
    tree: Any,
    num_slots: int,
    products: Any,
    queries: Any,
    keys: Any,
    written: Any,
    log_decay: Any,
    decay: Any,
    beta: Any,
    head: int,
    projected: Any,
    first: int,
    z_at: int,
    norm_weight: Any,
    norm_eps: Any,
    out: Any,
) -> None:
    """One head of one sequence: all rows through its columns of the state, block by block, then norm and gate.

    ``tree`` has no rows for a chain; a tree is not decided. ``products``, (groups, 2, rows, height), has no groups for
    the path form.
    """
    _, num_rows, key_dim = keys.shape
    width, per_group, value_dim = written.shape[2], decay.shape[2], norm_weight.shape[0]
    group, r = head // per_group, head % per_group
    blocks = np.empty(num_slots * key_dim * BLOCK_COLUMNS, np.float32)
    block = blocks[: key_dim * BLOCK_COLUMNS]
    new = np.empty(num_rows * BLOCK_COLUMNS, np.float32)
    reads, knows = np.empty_like(new), np.empty_like(new)
    is_wy = products.shape[0] > 0
    factors, whole = np.empty(products.shape[1:], np.float32), np.empty(num_rows, np.float32)
    if is_wy:
        decay_products(tree, products[group], log_decay[group], beta[group], r, factors, whole)
    all_written, all_reads = written.reshape(-1), out.reshape(-1)
    for column in range(r * value_dim, (r + 1) * value_dim, BLOCK_COLUMNS):
        count = (r + 1) * value_dim - column
        state_at, written_at = group * key_dim * width + column, group * num_rows * width + column
        take_columns(state, state_at, width, count, block)
        take_columns(all_written, written_at, width, count, new)
        if is_wy:
            run_wy(
                block, tree, queries[group], keys[group], beta[group], r, factors, whole, knows, new, reads
            )
        elif tree.shape[0] > 0:
            run_tree(blocks, tree, queries[group], keys[group], decay[group], beta[group], r, new, reads)
        else:
            run_chain(block, queries[group], keys[group], decay[group], beta[group], r, new, reads)
        put_columns(all_written, written_at, width, count, new)
        reads_at = first * out.shape[1] + group * width + column
        put_columns(all_reads, reads_at, out.shape[1], count, reads)
        if is_decided:
            put_columns(state, state_at, width, count, block)
    for t in range(first, first + num_rows):
        at = head * value_dim
        gate = projected[t, z_at + at : z_at + at + value_dim]
        _norm_and_gate(out[t, at : at + value_dim], norm_weight, norm_eps, gate)


@inlined
def replay_head(state: Any, keys: Any, written: Any, decay: Any, head: int, num_rows: int) -> None:
    """Advance a head's columns by the first ``num_rows`` rows, with the writes that running them makes.

    Every number is read and written once, in the order of memory: it stays in a register while the rows pass.
    """
    _, most, key_dim = keys.shape
    width, per_group = written.shape[2], decay.shape[2]
    value_dim = width // per_group
    group, r = head // per_group, head % per_group
    written_flat, written_at = written.reshape(-1), group * most * width
    whole_end = (r + 1) * value_dim - value_dim % BLOCK_COLUMNS
    for i in range(key_dim):
        state_at = (group * key_dim + i) * width
        for j in range(r * value_dim, whole_end, BLOCK_COLUMNS):
            at = state_at + j
            state_0, state_1 = load(state, at), load(state, at + LANES)
            for t in range(num_rows):
                factor, k = splat(decay[group, t, r]), splat(keys[group, t, i])
                row = written_at + t * width + j
                state_0 = write(state_0, factor, k, load(written_flat, row))
                state_1 = write(state_1, factor, k, load(written_flat, row + LANES))
            store(state, at, state_0)
            store(state, at + LANES, state_1)
        for j in range(whole_end, (r + 1) * value_dim):
            for t in range(num_rows):
                at = state_at + j
                state[at] = write(state[at], decay[group, t, r], keys[group, t, i], written[group, t, j])
