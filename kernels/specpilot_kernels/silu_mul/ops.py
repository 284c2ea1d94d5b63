"""The public function of the gate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_gate import run_gate
from specpilot_kernels.silu_mul.cpu_numba import gate

__all__ = ["silu_mul"]


def silu_mul(gate_up: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Gate the second half of every row by the first.

        y[m, i] = silu(x[m, i]) * x[m, I + i],  silu(g) = g / (1 + exp(-g))

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
    return run_gate(gate, gate_up, out)
