"""The public functions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.cpu_pool import pool_for
from specpilot_kernels.q_weights.layout import NUM_BITS, NumBits, QWeight
from specpilot_kernels.q_weights.reference import LARGEST, SHARES
from specpilot_kernels.skinny_gemm.cpu_numba import GROUP_COLUMNS, compile_int8
from specpilot_kernels.skinny_gemm.layout import PANEL_COLUMNS

__all__ = ["dequantise", "integer_product", "q_matmul", "quantise"]

_ROWS_AT_ONCE = 16 * GROUP_COLUMNS


def quantise(weight: Tensor, num_bits: NumBits) -> QWeight:
    """Round a weight to integers with a scale for every row; see :mod:`specpilot_kernels.q_weights.reference`.

    Parameters
    ----------
    weight : Tensor, float32 or bfloat16, (N, K), CPU
        Finite, N and K at least 1.
    num_bits
        8 or 6.

    Raises
    ------
    ValueError
        Another number of bits, dtype, shape or a value that is not finite.
    """
    if num_bits not in NUM_BITS:
        raise ValueError(f"num_bits: got {num_bits}, expected one of {NUM_BITS}")
    is_weight = weight.dtype in (torch.float32, torch.bfloat16) and weight.device.type == "cpu"
    if not is_weight or weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(
            f"weight: got {weight.dtype} {tuple(weight.shape)} on {weight.device}, expected float32 or bfloat16 (N, K) "
            "on the CPU"
        )
    num_rows, num_inputs = weight.shape
    padded = -(-num_rows // GROUP_COLUMNS) * GROUP_COLUMNS
    panels = np.zeros((padded // PANEL_COLUMNS, num_inputs, PANEL_COLUMNS), np.int8)
    scales = np.zeros(num_rows, np.float32)
    # In parts: the float64 numbers of a large weight would be four times its BF16 bytes.
    for first in range(0, num_rows, _ROWS_AT_ONCE):
        rows = weight[first : first + _ROWS_AT_ONCE].detach().float().numpy()
        if not np.isfinite(rows).all():
            raise ValueError(f"weight: rows {first} on hold a value that is not finite, expected finite ones")
        integers = np.zeros((-(-len(rows) // PANEL_COLUMNS) * PANEL_COLUMNS, num_inputs), np.int8)
        integers[: len(rows)], scales[first : first + len(rows)] = _round(rows, num_bits)
        by_panel = integers.reshape(-1, PANEL_COLUMNS, num_inputs).transpose(0, 2, 1)
        panels[first // PANEL_COLUMNS : first // PANEL_COLUMNS + len(by_panel)] = by_panel
    return QWeight(panels, scales, num_bits)


def dequantise(weight: QWeight) -> Tensor:
    """The numbers the copy stands for, float32 (N, K), new memory."""
    integers = weight.panels.transpose(0, 2, 1).reshape(-1, weight.num_inputs)[: weight.num_columns]
    return torch.from_numpy(weight.scales[:, None] * integers.astype(np.float32))


def q_matmul(x: NDArray[np.float32], weight: QWeight) -> NDArray[np.float32]:
    """Multiply rows by a quantised weight: ``y[m, n] = scales[n] * sum over k of x[m, k] * q[n, k]``.

    The sum is that of :func:`specpilot_kernels.skinny_gemm.skinny_gemm`, in its order, so a row's result depends on
    nothing but the row and the weight, bit for bit.

    Parameters
    ----------
    x : array, float32, (M, K), contiguous
        M >= 1.

    Returns
    -------
    array, float32, (M, N), new memory

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    y = integer_product(x, weight)
    y *= weight.scales
    return y


def integer_product(x: NDArray[np.float32], weight: QWeight) -> NDArray[np.float32]:
    """:func:`q_matmul` before the scales."""
    if x.ndim != 2 or x.shape[1] != weight.num_inputs or not len(x):
        raise ValueError(f"x: got shape {x.shape}, expected (M, {weight.num_inputs}) with M at least 1")
    y = np.empty((len(x), weight.num_columns), np.float32)
    try:
        compile_int8()(x, weight.panels, y, pool_for(len(x) * weight.panels.size))
    except TypeError as error:
        raise ValueError(
            f"x: got {x.dtype} with strides {x.strides}, expected a contiguous float32 array"
        ) from error
    return y


def _round(rows: NDArray[np.float32], num_bits: NumBits) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Integers and scales of some rows: the reference for all rows at once."""
    largest = LARGEST[num_bits]
    wide = rows.astype(np.float64)
    peaks = np.abs(wide).max(1)
    integers = np.zeros(rows.shape, np.int8)
    scales, least = np.zeros(len(rows), np.float32), np.full(len(rows), np.inf)
    for share in SHARES[num_bits]:
        scale = (peaks * share / largest).astype(np.float32)
        divisor = np.where(scale == 0, 1, scale).astype(np.float64)[:, None]
        candidate = np.clip(np.rint(wide / divisor), -largest, largest)
        error = ((wide - divisor * candidate) ** 2).sum(1)
        is_better = (error < least) & (scale != 0)
        integers[is_better] = candidate[is_better].astype(np.int8)
        scales[is_better], least[is_better] = scale[is_better], error[is_better]
    return integers, scales
