"""The public function of the convolution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.block_conv.cpu_numba import convolve

__all__ = ["block_conv"]

_Array = NDArray[np.float32]


def block_conv(x: _Array, base: _Array, delta: _Array) -> _Array:
    """Convolve the rows of a block with coefficients of their own.

        y[m, c] = sum over o of (base[o, g, i] + delta[m, o, g]) x[m - o, c],   c = g size + i, rows before 0 count as 0

    A row's bits depend on the row and on the ``taps - 1`` rows before it. All arrays are float32 and contiguous.

    Parameters
    ----------
    x : array, (M, G size)
    base : array, (taps, G, size)
        What all rows share.
    delta : array, (M, taps, G)
        What a row adds for each group of channels.

    Returns
    -------
    array, (M, G size)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    num_taps, num_groups, size = base.shape
    if x.shape != (len(x), num_groups * size) or delta.shape != (len(x), num_taps, num_groups) or not x.size:
        raise ValueError(
            f"got x {x.shape}, base {base.shape}, delta {delta.shape}; expected (M, G size), (taps, G, size), "
            "(M, taps, G), none of them 0"
        )
    out = np.empty_like(x)
    try:
        convolve(x, base, delta, out)
    except TypeError as error:
        raise ValueError(
            f"got x {x.dtype} {x.strides}, base {base.dtype} {base.strides}, delta {delta.dtype} {delta.strides} "
            "(dtype, strides); expected contiguous float32 arrays"
        ) from error
    return out
