"""The joined kernels on the CPU. Importing this module compiles them.

They call the kernels of the single operations in the order in which Python would, so the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.rms_norm.cpu_numba import normalise
from specpilot_kernels.silu_mul.cpu_numba import gate
from specpilot_kernels.skinny_gemm.cpu_numba import multiply_bfloat16

__all__ = ["add_feed_forward", "add_product", "multiply_normed"]


@kernel("void(f4[:,::1], f4[::1], f4, u2[:,:,::1], f4[:,::1], i8)")
def multiply_normed(x: Any, scale: Any, eps: Any, panels: Any, y: Any, pool: int) -> None:
    normed = np.empty(x.shape, np.float32)
    normalise(x, scale, eps, normed)
    multiply_bfloat16(normed, panels, y, pool)


@inlined
def _add(x: Any, y: Any) -> None:
    for m in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[m, i] += y[m, i]


@kernel("void(f4[:,::1], f4[:,::1], u2[:,:,::1], i8)")
def add_product(x: Any, y: Any, panels: Any, pool: int) -> None:
    product = np.empty(x.shape, np.float32)
    multiply_bfloat16(y, panels, product, pool)
    _add(x, product)


@kernel("void(f4[:,::1], f4[::1], f4, u2[:,:,::1], u2[:,:,::1], i8, i8)")
def add_feed_forward(
    x: Any, scale: Any, eps: Any, gate_up: Any, down: Any, gate_up_pool: int, down_pool: int
) -> None:
    num_rows, width = x.shape[0], down.shape[1]
    normed = np.empty(x.shape, np.float32)
    normalise(x, scale, eps, normed)
    both = np.empty((num_rows, 2 * width), np.float32)
    multiply_bfloat16(normed, gate_up, both, gate_up_pool)
    gated = np.empty((num_rows, width), np.float32)
    gate(both, gated)
    multiply_bfloat16(gated, down, normed, down_pool)
    _add(x, normed)
