"""The inner loops: one pass over the state to read what it knows, and one for every row.

The columns of a state do not depend on each other, given keys and queries. So 32 columns at a time go through all rows,
as a block that stays in the first-level cache, with all sums in registers. Rows run in order and every sum has one
order, so a row's bits depend on the rows before it and on nothing else, and a replayed prefix is bit for bit the state
that running the prefix alone would have left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_math import exp, sigmoid, silu, softplus
from specpilot_kernels.cpu_vector import LANES, fma, load, mul, splat, squared_length, store

__all__ = ["BLOCK_COLUMNS", "prepare", "replay_head", "run_head"]

BLOCK_COLUMNS = 2 * LANES
_ZERO, _ONE = np.float32(0), np.float32(1)


@inlined
def _write(before: Any, factor: Any, key: Any, written: Any) -> Any:
    """Numbers of the state after a write, 16 or one; the one place that decides how a write rounds."""
    return fma(key, written, mul(factor, before))


@inlined
def _take_columns(source: Any, offset: int, stride: int, count: int, block: Any) -> None:
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
def _put_columns(target: Any, offset: int, stride: int, count: int, block: Any) -> None:
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
def _run_block(
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
            state_0 = _write(load(block, at), factor, k, w_0)
            state_1 = _write(load(block, at + LANES), factor, k, w_1)
            store(block, at, state_0)
            store(block, at + LANES, state_1)
            read_0, read_1 = fma(q, state_0, read_0), fma(q, state_1, read_1)
            known_0, known_1 = fma(next_k, state_0, known_0), fma(next_k, state_1, known_1)
        store(reads, row, read_0)
        store(reads, row + LANES, read_1)


@inlined
def _activate(inputs: Any, taps: Any, row: int, activated: Any) -> None:
    """silu(convolution) of one row."""
    for c in range(taps.shape[1]):
        activated[c] = inputs[row, c] * taps[0, c]
    for tap in range(1, taps.shape[0]):
        for c in range(taps.shape[1]):
            activated[c] += inputs[row + tap, c] * taps[tap, c]
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
    window: Any,
    taps: Any,
    rate: Any,
    dt_bias: Any,
    unit_eps: Any,
    inputs: Any,
    queries: Any,
    keys: Any,
    written: Any,
    decay: Any,
    beta: Any,
) -> None:
    """What the rows of one sequence bring to the recurrence; values go into ``written``. Rows start at ``first``."""
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
    activated = np.empty(num_channels, np.float32)
    for t in range(num_rows):
        _activate(inputs, taps, t, activated)
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
                decay[group, t, r] = exp(rate[head] * softplus(row[a_at + head] + dt_bias[head]))
                beta[group, t, r] = sigmoid(row[b_at + head])


@inlined
def run_head(
    state: Any,
    is_decided: bool,
    queries: Any,
    keys: Any,
    written: Any,
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
    """One head of one sequence: all rows through its columns of the state, block by block, then norm and gate."""
    _, num_rows, key_dim = keys.shape
    width, per_group, value_dim = written.shape[2], decay.shape[2], norm_weight.shape[0]
    group, r = head // per_group, head % per_group
    block = np.empty(key_dim * BLOCK_COLUMNS, np.float32)
    new = np.empty(num_rows * BLOCK_COLUMNS, np.float32)
    reads = np.empty_like(new)
    all_written, all_reads = written.reshape(-1), out.reshape(-1)
    for column in range(r * value_dim, (r + 1) * value_dim, BLOCK_COLUMNS):
        count = (r + 1) * value_dim - column
        state_at, written_at = group * key_dim * width + column, group * num_rows * width + column
        _take_columns(state, state_at, width, count, block)
        _take_columns(all_written, written_at, width, count, new)
        _run_block(block, queries[group], keys[group], decay[group], beta[group], r, new, reads)
        _put_columns(all_written, written_at, width, count, new)
        reads_at = first * out.shape[1] + group * width + column
        _put_columns(all_reads, reads_at, out.shape[1], count, reads)
        if is_decided:
            _put_columns(state, state_at, width, count, block)
    for t in range(first, first + num_rows):
        at = head * value_dim
        gate = projected[t, z_at + at : z_at + at + value_dim]
        _norm_and_gate(out[t, at : at + value_dim], norm_weight, norm_eps, gate)


@inlined
def replay_head(state: Any, keys: Any, written: Any, decay: Any, head: int, num_rows: int) -> None:
    """Advance a head's columns by the first ``num_rows`` rows, with the writes of :func:`_run_block`.

    Every number is read and written once: it stays in a register while the rows pass.
    """
    _, most, key_dim = keys.shape
    width, per_group = written.shape[2], decay.shape[2]
    value_dim = width // per_group
    group, r = head // per_group, head % per_group
    written_flat, written_at = written.reshape(-1), group * most * width
    whole_end = (r + 1) * value_dim - value_dim % BLOCK_COLUMNS
    for j in range(r * value_dim, whole_end, BLOCK_COLUMNS):
        for i in range(key_dim):
            at = (group * key_dim + i) * width + j
            state_0, state_1 = load(state, at), load(state, at + LANES)
            for t in range(num_rows):
                factor, k = splat(decay[group, t, r]), splat(keys[group, t, i])
                row = written_at + t * width + j
                state_0 = _write(state_0, factor, k, load(written_flat, row))
                state_1 = _write(state_1, factor, k, load(written_flat, row + LANES))
            store(state, at, state_0)
            store(state, at + LANES, state_1)
    for j in range(whole_end, (r + 1) * value_dim):
        for i in range(key_dim):
            at = (group * key_dim + i) * width + j
            for t in range(num_rows):
                state[at] = _write(state[at], decay[group, t, r], keys[group, t, i], written[group, t, j])
