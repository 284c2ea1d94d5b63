"""The public functions of the joined operations.

Between two kernels stands Python, which holds its lock: with a step of a small model on each of two threads the lock
changes hands at every call. Fewer calls also save a few microseconds each. All weights are BF16 panels, all other
arrays float32 and contiguous; a row's bits depend on the row alone and are those of the single operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_pool import pool_for
from specpilot_kernels.layer_parts.cpu_numba import add_feed_forward, add_product, multiply_normed
from specpilot_kernels.skinny_gemm.layout import PackedWeight

__all__ = ["feed_forward", "norm_project", "project_add"]

_Array = NDArray[np.float32]


def norm_project(x: _Array, scale: _Array, eps: float, weight: PackedWeight) -> _Array:
    """Multiply normed rows by a weight: ``rms_norm(x, scale, eps) W^T``.

    Parameters
    ----------
    x : array, (M, K)
    scale : array, (K,)
    weight
        N outputs, K inputs.

    Returns
    -------
    array, (M, N)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    _check(x, x.shape[-1], scale, weight)
    out = np.empty((len(x), weight.num_columns), np.float32)
    pool = pool_for(len(x) * weight.panels.size)
    _call(multiply_normed, x, scale, eps, weight.panels, out, pool)
    return out


def project_add(x: _Array, y: _Array, weight: PackedWeight) -> None:
    """Add a product to rows in place: ``x += y W^T``.

    Parameters
    ----------
    x : array, (M, N)
    y : array, (M, K)
    weight
        N outputs, K inputs.

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    _check(x, weight.num_columns, None, weight, y)
    _call(add_product, x, y, weight.panels, pool_for(len(x) * weight.panels.size))


def feed_forward(x: _Array, scale: _Array, eps: float, gate_up: PackedWeight, down: PackedWeight) -> None:
    """Add a gated block to rows in place.

        n = rms_norm(x, scale, eps);  x += (silu(n G^T) * (n U^T)) D^T

    Parameters
    ----------
    x : array, (M, H)
    scale : array, (H,)
    gate_up
        G above U: 2 I outputs, H inputs.
    down
        D: H outputs, I inputs.

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    _check(x, down.num_columns, scale, gate_up)
    if gate_up.num_columns != 2 * down.num_inputs or down.panels.dtype != np.uint16:
        raise ValueError(
            f"got gate_up with {gate_up.num_columns} outputs and a {down.element_type} down with {down.num_inputs} "
            "inputs, expected twice as many outputs as inputs, and bfloat16"
        )
    pools = (pool_for(len(x) * weight.panels.size) for weight in (gate_up, down))
    _call(add_feed_forward, x, scale, eps, gate_up.panels, down.panels, *pools)


def _check(
    x: _Array, width: int, scale: _Array | None, weight: PackedWeight, inputs: _Array | None = None
) -> None:
    """``inputs`` go into the product; x if left out."""
    inputs = x if inputs is None else inputs
    if (
        x.ndim != 2
        or not x.size
        or x.shape[1] != width
        or inputs.shape != (len(x), weight.num_inputs)
        or (scale is not None and scale.shape != x.shape[1:])
        or weight.panels.dtype != np.uint16
    ):
        raise ValueError(
            f"got x {x.shape}, y {inputs.shape}, scale {None if scale is None else scale.shape}, a weight of "
            f"{weight.element_type} ({weight.num_columns}, {weight.num_inputs}); expected rows as wide as the weight "
            "has inputs and outputs, a scale for each channel, at least one row, and bfloat16"
        )


def _call(function: Any, *arguments: Any) -> None:
    try:
        function(*arguments)
    except TypeError as error:
        got = ", ".join(f"{one.dtype} {one.strides}" for one in arguments if isinstance(one, np.ndarray))
        raise ValueError(f"got {got} (dtype, strides); expected contiguous float32 arrays") from error
