"""The public functions of the product."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.cpu_pool import pool_for
from specpilot_kernels.skinny_gemm.cpu_numba import compile_float32, multiply_bfloat16
from specpilot_kernels.skinny_gemm.layout import PackedWeight

__all__ = ["skinny_gemm", "skinny_gemm_arrays"]


def skinny_gemm(x: Tensor, weight: PackedWeight, out: Tensor | None = None) -> Tensor:
    """Multiply rows by a packed weight.

        y[m, n] = sum over k of x[m, k] * W[n, k]

    A row's result depends on nothing but the row and the weight, bit for bit: not on M, its index, the other rows
    or the number of threads (``cpu_jit.set_num_threads``). Made for 1 to 32 rows; more are fine. No gradients.

    Parameters
    ----------
    x : Tensor, float32, (M, K), contiguous, CPU
        M >= 1.
    weight
        N outputs, K inputs.
    out : Tensor, float32, (M, N), contiguous, CPU, optional
        Written and returned; must not overlap ``x``. New memory if left out.

    Returns
    -------
    Tensor, float32, (M, N)

    Raises
    ------
    ValueError
        A shape, dtype, device or stride is not as stated.
    """
    try:
        x_array, out_array = x.numpy(), None if out is None else out.numpy()
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"x or out: expected float32 tensors on the CPU without gradient; {error}"
        ) from error
    result = skinny_gemm_arrays(x_array, weight, out_array)
    return torch.from_numpy(result) if out is None else out


def skinny_gemm_arrays(
    x: NDArray[np.float32], weight: PackedWeight, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """:func:`skinny_gemm` on numpy arrays, which saves 2 us a call (measured)."""
    panels = weight.panels
    if x.ndim != 2 or x.shape[1] != panels.shape[1] or not x.shape[0]:
        raise ValueError(f"x: got shape {x.shape}, expected (M, {panels.shape[1]}) with M at least 1")
    shape = (x.shape[0], weight.num_columns)
    if out is None:
        out = np.empty(shape, np.float32)
    elif out.shape != shape:
        raise ValueError(f"out: got shape {out.shape}, expected {shape}")
    multiply = multiply_bfloat16 if panels.dtype == np.uint16 else compile_float32()
    try:
        # The compiled functions take float32 in C order and nothing else.
        multiply(x, panels, out, pool_for(x.shape[0] * panels.size))
    except TypeError as error:
        raise ValueError(
            f"got x {x.dtype} with strides {x.strides} and out {out.dtype} with strides {out.strides}, expected "
            "contiguous float32 arrays"
        ) from error
    return out
