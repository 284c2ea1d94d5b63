"""The kernel on the CPU: one pass over the state to read what it knows, one to write and read out.

Rows run in order and every sum has one order, so a row's bits depend on the rows before it and on nothing else, and a
replayed prefix is bit for bit the state that running the prefix alone would have left. A state of one group, 128 x 256
numbers, is 128 KiB and stays in the second-level cache.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_jit import inlined, kernel

__all__ = ["replay", "run_rows"]

_Array = NDArray[np.float32]
_ONE = np.float32(1.0)
# Above this softplus(x) is x in float32.
_SOFTPLUS_LINEAR = np.float32(20.0)


@inlined
def _sigmoid(x: np.float32) -> np.float32:
    return _ONE / (_ONE + np.float32(math.exp(-x)))


@inlined
def _softplus(x: np.float32) -> np.float32:
    return x if x > _SOFTPLUS_LINEAR else np.float32(math.log1p(math.exp(x)))


@inlined
def _written(state: np.float32, factor: np.float32, key: np.float32, value: np.float32) -> np.float32:
    """A number of the state after a write; the one place that decides how a write rounds."""
    return state * factor + key * value


@kernel(
    "void(f4[:,::1], f4[:,::1], f4[:,:,::1], f4[:,::1], f4[::1], f4[::1], f4[::1], f4, f4, f4[:,::1], f4[:,:,::1], "
    "f4[:,:,::1], f4[:,:,::1])"
)
def run_rows(
    projected: _Array,
    inputs: _Array,
    state: _Array,
    taps: _Array,
    rate: _Array,
    dt_bias: _Array,
    norm_weight: _Array,
    unit_eps: np.float32,
    norm_eps: np.float32,
    out: _Array,
    keys: _Array,
    written: _Array,
    decay: _Array,
) -> None:
    """``state`` is advanced through all rows; ``inputs`` holds window and rows; the last four are written."""
    num_rows = projected.shape[0]
    num_taps, channels = taps.shape
    num_groups, key_dim, width = state.shape
    value_dim = norm_weight.shape[0]
    per_group = width // value_dim
    num_heads = num_groups * per_group
    values_at = 2 * num_groups * key_dim
    z_at = channels
    b_at = z_at + num_heads * value_dim
    a_at = b_at + num_heads
    query_scale = np.float32(1.0 / math.sqrt(key_dim))
    activated = np.empty(channels, np.float32)
    query = np.empty(key_dim, np.float32)
    factor = np.empty(width, np.float32)
    read = np.empty(width, np.float32)
    for t in range(num_rows):
        for c in range(channels):
            total = inputs[t, c] * taps[0, c]
            for tap in range(1, num_taps):
                total += inputs[t + tap, c] * taps[tap, c]
            activated[c] = total
        for c in range(channels):
            activated[c] = activated[c] * _sigmoid(activated[c])
        for group in range(num_groups):
            at = 2 * group * key_dim
            squares_q, squares_k = np.float32(0.0), np.float32(0.0)
            for i in range(key_dim):
                squares_q += activated[at + i] * activated[at + i]
                squares_k += activated[at + key_dim + i] * activated[at + key_dim + i]
            unit_q = query_scale / np.float32(math.sqrt(squares_q + unit_eps))
            unit_k = _ONE / np.float32(math.sqrt(squares_k + unit_eps))
            key = keys[group, t]
            for i in range(key_dim):
                query[i] = activated[at + i] * unit_q
                key[i] = activated[at + key_dim + i] * unit_k
            w = written[group, t]
            for j in range(width):
                w[j] = np.float32(0.0)
                read[j] = np.float32(0.0)
            for i in range(key_dim):
                k = key[i]
                for j in range(width):
                    w[j] += k * state[group, i, j]
            for r in range(per_group):
                head = group * per_group + r
                f = np.float32(math.exp(rate[head] * _softplus(projected[t, a_at + head] + dt_bias[head])))
                beta = _sigmoid(projected[t, b_at + head])
                decay[group, t, r] = f
                for j in range(r * value_dim, (r + 1) * value_dim):
                    factor[j] = f
                    w[j] = (activated[values_at + group * width + j] - f * w[j]) * beta
            for i in range(key_dim):
                k, q = key[i], query[i]
                for j in range(width):
                    after = _written(state[group, i, j], factor[j], k, w[j])
                    state[group, i, j] = after
                    read[j] += q * after
            for r in range(per_group):
                squares = np.float32(0.0)
                for j in range(r * value_dim, (r + 1) * value_dim):
                    squares += read[j] * read[j]
                inverse = _ONE / np.float32(math.sqrt(squares / np.float32(value_dim) + norm_eps))
                for j in range(value_dim):
                    column = group * width + r * value_dim + j
                    z = projected[t, z_at + column]
                    out[t, column] = read[r * value_dim + j] * inverse * norm_weight[j] * (z * _sigmoid(z))


@kernel("void(f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], i8)")
def replay(state: _Array, keys: _Array, written: _Array, decay: _Array, num_rows: int) -> None:
    """Advance every state by the first ``num_rows`` rows, with the writes of :func:`run_rows`."""
    width = state.shape[2]
    value_dim = width // decay.shape[2]
    factor = np.empty(width, np.float32)
    for n in range(state.shape[0]):
        for t in range(num_rows):
            for j in range(width):
                factor[j] = decay[n, t, j // value_dim]
            for i in range(state.shape[1]):
                for j in range(width):
                    state[n, i, j] = _written(state[n, i, j], factor[j], keys[n, t, i], written[n, t, j])
