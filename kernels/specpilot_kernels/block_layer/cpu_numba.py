"""The layer on the CPU. Importing this module compiles it.

It calls the kernels of the single operations in the order in which Python would, so the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.block_conv.cpu_numba import convolve
from specpilot_kernels.chain_attention.cpu_numba import attend
from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.rms_norm.cpu_numba import normalise
from specpilot_kernels.silu_mul.cpu_numba import gate
from specpilot_kernels.skinny_gemm.cpu_numba import multiply_bfloat16

__all__ = ["run_layer"]


@inlined
def _product(x: Any, panels: Any, num_columns: int, pool: int, share_from: int) -> Any:
    out = np.empty((x.shape[0], num_columns), np.float32)
    multiply_bfloat16(x, panels, out, pool if x.shape[0] * panels.size >= share_from else 0)
    return out


@inlined
def _convolved(x: Any, base: Any, delta: Any, side: int, places: Any) -> Any:
    """``delta`` (rows, 2 taps G) has the coefficients of both sides."""
    _, num_taps, num_groups, _ = base.shape
    num_rows, width = x.shape[0], num_taps * num_groups
    own = np.empty((num_rows, num_taps, num_groups), np.float32)
    flat = own.reshape(-1)
    for m in range(num_rows):
        for i in range(width):
            flat[m * width + i] = delta[m, side * width + i]
    out = np.empty(x.shape, np.float32)
    convolve(x, base[side], own, places, out)
    return out


@inlined
def _add(x: Any, y: Any) -> None:
    for m in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[m, i] += y[m, i]


@kernel(
    "void(f4[:,::1], i8[::1], i8[:,::1], i8, f4[:,:,::1], f4, f4[::1], f4[:,::1], u2[:,:,::1], u2[:,:,::1], f4[::1], "
    "u2[:,:,::1], u2[:,:,::1], f4[:,:,:,::1], u2[:,:,::1], f4[:,:,:,::1], u2[:,:,::1], i8, i8)"
)
def run_layer(
    x: Any,
    places: Any,
    segments: Any,
    num_groups: int,
    rotation: Any,
    eps: Any,
    input_scale: Any,
    head_scales: Any,
    qkv: Any,
    attention_out: Any,
    post_scale: Any,
    gate_up: Any,
    down: Any,
    attention_base: Any,
    attention_delta: Any,
    mlp_base: Any,
    mlp_delta: Any,
    pool: int,
    share_from: int,
) -> None:
    """Rows x, (R, H), in place. Bases without taps: no convolution."""
    num_rows, width = x.shape
    dim = head_scales.shape[1]
    num_heads = head_scales.shape[0] - num_groups
    has_conv = attention_base.shape[1] > 0
    normed = np.empty(x.shape, np.float32)
    delta = np.empty((0, 0), np.float32)

    normalise(x, input_scale, eps, normed)
    mixed = normed
    if has_conv:
        num_deltas = 2 * attention_base.shape[1] * attention_base.shape[2]
        delta = _product(normed, attention_delta, num_deltas, pool, share_from)
        mixed = _convolved(normed, attention_base, delta, 0, places)
    projected = _product(mixed, qkv, (num_heads + 2 * num_groups) * dim, pool, share_from)
    attended = np.empty((num_rows, num_heads * dim), np.float32)
    attend(projected, segments, num_groups, head_scales, rotation, eps, True, rotation.shape[0], attended, 0)
    y = _product(attended, attention_out, width, pool, share_from)
    if has_conv:
        y = _convolved(y, attention_base, delta, 1, places)
    _add(x, y)

    normalise(x, post_scale, eps, normed)
    mixed = normed
    if has_conv:
        num_deltas = 2 * mlp_base.shape[1] * mlp_base.shape[2]
        delta = _product(normed, mlp_delta, num_deltas, pool, share_from)
        mixed = _convolved(normed, mlp_base, delta, 0, places)
    both = _product(mixed, gate_up, 2 * down.shape[1], pool, share_from)
    gated = np.empty((num_rows, down.shape[1]), np.float32)
    gate(both, gated)
    y = _product(gated, down, width, pool, share_from)
    if has_conv:
        y = _convolved(y, mlp_base, delta, 1, places)
    _add(x, y)
