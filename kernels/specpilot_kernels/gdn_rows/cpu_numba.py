"""The kernel on the CPU: one pass over the state to read what it knows, and one for every row.

The columns of a state do not depend on each other, given keys and queries. So 32 columns at a time go through all rows,
as a block that stays in the first-level cache, with all sums in registers. Rows run in order and every sum has one
order, so a row's bits depend on the rows before it and on nothing else, and a replayed prefix is bit for bit the state
that running the prefix alone would have left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_math import exp, sigmoid, silu, softplus
from specpilot_kernels.cpu_vector import LANES, fma, load, mul, splat, squared_length, store

__all__ = ["BLOCK_COLUMNS", "replay", "run_rows"]

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


@kernel(
    "void(f4[:,::1], f4[:,::1], f4[:,:,::1], f4[:,::1], f4[::1], f4[::1], f4[::1], f4, f4, f4[:,::1], f4[:,:,::1], "
    "f4[:,:,::1], f4[:,:,::1])"
)
def run_rows(
    projected: Any,
    inputs: Any,
    state: Any,
    taps: Any,
    rate: Any,
    dt_bias: Any,
    norm_weight: Any,
    unit_eps: Any,
    norm_eps: Any,
    out: Any,
    keys: Any,
    written: Any,
    decay: Any,
) -> None:
    """``inputs`` holds window and rows; ``state`` is only read; the last four are written."""
    num_rows = projected.shape[0]
    if num_rows == 0:
        return
    num_groups, key_dim, width = state.shape
    value_dim = norm_weight.shape[0]
    per_group = width // value_dim
    num_heads = num_groups * per_group
    z_at = taps.shape[1]
    b_at = z_at + num_heads * value_dim
    a_at = b_at + num_heads
    query_scale = np.float32(1.0 / math.sqrt(key_dim))
    activated = np.empty(z_at, np.float32)
    queries = np.empty((num_groups, num_rows, key_dim), np.float32)
    beta = np.empty((num_groups, num_rows, per_group), np.float32)
    for t in range(num_rows):
        _activate(inputs, taps, t, activated)
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
                decay[group, t, r] = exp(rate[head] * softplus(projected[t, a_at + head] + dt_bias[head]))
                beta[group, t, r] = sigmoid(projected[t, b_at + head])
    block = np.empty(key_dim * BLOCK_COLUMNS, np.float32)
    new = np.empty(num_rows * BLOCK_COLUMNS, np.float32)
    reads = np.empty_like(new)
    states, all_written, all_reads = state.reshape(-1), written.reshape(-1), out.reshape(-1)
    for group in range(num_groups):
        for r in range(per_group):
            for first in range(r * value_dim, (r + 1) * value_dim, BLOCK_COLUMNS):
                count = (r + 1) * value_dim - first
                written_at = group * num_rows * width + first
                _take_columns(states, group * key_dim * width + first, width, count, block)
                _take_columns(all_written, written_at, width, count, new)
                _run_block(block, queries[group], keys[group], decay[group], beta[group], r, new, reads)
                _put_columns(all_written, written_at, width, count, new)
                _put_columns(all_reads, group * width + first, num_groups * width, count, reads)
    for t in range(num_rows):
        for first in range(0, num_heads * value_dim, value_dim):
            gate = projected[t, z_at + first : z_at + first + value_dim]
            _norm_and_gate(out[t, first : first + value_dim], norm_weight, norm_eps, gate)


@kernel("void(f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], i8)")
def replay(state: Any, keys: Any, written: Any, decay: Any, num_rows: int) -> None:
    """Advance every state by the first ``num_rows`` rows, with the writes of :func:`run_rows`.

    Every number is read and written once: it stays in a register while the rows pass.
    """
    num_states, key_dim, width = state.shape
    num_heads = decay.shape[2]
    value_dim = width // num_heads
    state_flat, written_flat = state.reshape(-1), written.reshape(-1)
    for n in range(num_states):
        written_at = n * written.shape[1] * width
        for head in range(num_heads):
            whole_end = (head + 1) * value_dim - value_dim % BLOCK_COLUMNS
            for j in range(head * value_dim, whole_end, BLOCK_COLUMNS):
                for i in range(key_dim):
                    at = (n * key_dim + i) * width + j
                    state_0, state_1 = load(state_flat, at), load(state_flat, at + LANES)
                    for t in range(num_rows):
                        factor, k = splat(decay[n, t, head]), splat(keys[n, t, i])
                        row = written_at + t * width + j
                        state_0 = _write(state_0, factor, k, load(written_flat, row))
                        state_1 = _write(state_1, factor, k, load(written_flat, row + LANES))
                    store(state_flat, at, state_0)
                    store(state_flat, at + LANES, state_1)
            for j in range(whole_end, (head + 1) * value_dim):
                for i in range(key_dim):
                    for t in range(num_rows):
                        state[n, i, j] = _write(
                            state[n, i, j], decay[n, t, head], keys[n, t, i], written[n, t, j]
                        )
