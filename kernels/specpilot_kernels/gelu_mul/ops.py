"""The public function of the gate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.gelu_mul.cpu_numba import gate

__all__ = ["gelu_mul"]


def gelu_mul(gate_up: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Gate the second half of every row by the first.

        y[m, i] = gelu(x[m, i]) * x[m, I + i],  gelu(g) = g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))

    This is what checkpoints call ``gelu_pytorch_tanh``.

    A row's bits depend on nothing but the row.

    Parameters
    ----------
    gate_up : array, float32, (M, 2 I), contiguous
    out : array, float32, (M, I), contiguous, optional
        Written and returned; must not overlap ``gate_up``. New memory if left out.

    Returns
    -------
    array, float32, (M, I)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    shape = (gate_up.shape[0], gate_up.shape[-1] // 2)
    if out is None:
        out = np.empty(shape, np.float32)
    if gate_up.ndim != 2 or gate_up.shape[1] % 2 or not gate_up.size or out.shape != shape:
        raise ValueError(
            f"got gate_up {gate_up.shape}, out {out.shape}; expected (M, 2 I) and (M, I), neither 0"
        )
    try:
        gate(gate_up, out)
    except TypeError as error:
        raise ValueError(
            f"got gate_up {gate_up.dtype} {gate_up.strides}, out {out.dtype} {out.strides} (dtype, strides); expected "
            "contiguous float32 arrays"
        ) from error
    return out
