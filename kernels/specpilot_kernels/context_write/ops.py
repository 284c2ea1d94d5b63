"""The public function of the writing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.context_write.cpu_numba import write

__all__ = ["context_write"]

_Array = NDArray[np.float32]


def context_write(
    projected: _Array,
    cache: _Array,
    position: int,
    scales: _Array,
    rotation: _Array,
    eps: float | None,
) -> None:
    """Norm and rotate keys and store them, with their values, for L layers of G key heads of size d.

    All arrays are float32 and contiguous. A token's bits depend on its row and its position.

    Parameters
    ----------
    projected : array, (M, 2 L G d)
        Keys of every layer and head, then values likewise.
    cache : array, (L, 2, G, capacity, d)
        Keys and values of each layer (:class:`specpilot_kernels.chain_attention.KvMemory`); M tokens from ``position``
        on are written.
    scales : array, (L G, d)
        Norm scale of every key head.
    rotation : array, (positions, rotated pairs, 2)
        Cosine and sine for the channels 2 j and 2 j + 1 at every position.
    eps : float, >= 0, or None
        Added to the mean square. None: keys are scaled and not normed.

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated, or the tokens do not fit into the cache.
    """
    if cache.ndim != 5 or cache.shape[1] != 2:
        raise ValueError(f"cache: got {cache.shape}, expected (L, 2, G, capacity, d)")
    num_layers, _, num_groups, capacity, dim = cache.shape
    heads = num_layers * num_groups
    if (
        projected.shape != (len(projected), 2 * heads * dim)
        or scales.shape != (heads, dim)
        or rotation.shape[1:] != (rotation.shape[1], 2)
        or 2 * rotation.shape[1] > dim
    ):
        raise ValueError(
            f"got projected {projected.shape}, cache {cache.shape}, scales {scales.shape}, "
            f"rotation {rotation.shape}; expected (M, 2 L G d), (L, 2, G, capacity, d), (L G, d), "
            "(positions, at most d / 2, 2)"
        )
    most = min(capacity, rotation.shape[0])
    if position < 0 or position + len(projected) > most:
        raise ValueError(
            f"position: got {len(projected)} rows at {position}, expected rows from 0 to {most}, "
            "the smaller of cache capacity and rotary table"
        )
    if eps is not None and eps < 0:
        raise ValueError(f"eps: got {eps}, expected 0 or more, or None for keys without a norm")
    try:
        write(projected, cache, position, scales, rotation, -1.0 if eps is None else eps)
    except TypeError as error:
        names = ("projected", "cache", "scales", "rotation")
        arrays = (projected, cache, scales, rotation)
        got = ", ".join(
            f"{name} {array.dtype} {array.strides}" for name, array in zip(names, arrays, strict=True)
        )
        raise ValueError(f"got {got} (dtype, strides); expected contiguous float32 arrays") from error
