"""The public function of the convolution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.block_conv.cpu_numba import convolve

__all__ = ["block_conv"]

_Array = NDArray[np.float32]
_Places = NDArray[np.int64]


def block_conv(x: _Array, base: _Array, delta: _Array, places: _Places | None = None) -> _Array:
    """Convolve the rows of one block, or of several, with coefficients of their own.

        y[m, c] = sum over o of (base[o, g, i] + delta[m, o, g]) x[m - o, c],   c = g size + i

    Rows before the block count as 0. A row's bits depend on the row and on the ``taps - 1`` rows before it in its
    block. All arrays are contiguous and, but for ``places``, float32.

    Parameters
    ----------
    x : array, (M, G size)
    base : array, (taps, G, size)
        What all rows share.
    delta : array, (M, taps, G)
        What a row adds for each group of channels.
    places : array, int64, (M,), optional
        A row's place in its block, 0 for the first; blocks stand one behind the other. Left out: one block.

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
    if places is None:
        places = np.arange(len(x))
    elif places.shape != (len(x),) or (places < 0).any() or (places > np.arange(len(x))).any():
        raise ValueError(
            f"places: got {places}, expected {len(x)} places in blocks, 0 for the first row of each"
        )
    out = np.empty_like(x)
    try:
        convolve(x, base, delta, places, out)
    except TypeError as error:
        raise ValueError(
            f"got x {x.dtype} {x.strides}, base {base.dtype} {base.strides}, delta {delta.dtype} {delta.strides}, "
            f"places {places.dtype} {places.strides} (dtype, strides); expected contiguous arrays, float32 and int64"
        ) from error
    return out
