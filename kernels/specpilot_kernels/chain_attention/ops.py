"""The public functions of the attention."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.chain_attention.cpu_numba import attend
from specpilot_kernels.chain_attention.memory import KvSegments
from specpilot_kernels.cpu_memory import address_of
from specpilot_kernels.cpu_pool import pool_for
from specpilot_kernels.cpu_vector import LANES

__all__ = ["batch_attention", "chain_attention"]


def chain_attention(
    projected: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    position: int,
    scales: NDArray[np.float32],
    rotation: NDArray[np.float32],
    eps: float | None,
    out: NDArray[np.float32] | None = None,
    *,
    is_block: bool = False,
    window: int | None = None,
) -> NDArray[np.float32]:
    """Run M rows that follow each other through an attention layer, after its input and before its output projection.

        q, k = rotate(rms_norm(x_q) scales), rotate(rms_norm(x_k) scales);  k and v = x_v go into the cache
        out = softmax(q K^T) V sigmoid(x_gate), K and V the cache up to and including the row's own token

    All arrays are float32 and contiguous. A row's bits depend on the row and on the cache before it, not on M. H query
    heads share G key heads, H / G neighbours each; d is the head size. Rows without gates have no last factor.

    Parameters
    ----------
    projected : array, (M, (2 H + 2 G) d) or (M, (H + 2 G) d)
        Queries of all heads, then keys, values, and, in the wider form, gates of all heads.
    keys, values : array, (G, capacity, d)
        Tokens before ``position`` are read, M tokens from there on are written. Keys are normed and rotated.
    position : int
        Tokens in the cache before the first row.
    scales : array, (H + G, d)
        Norm scale of every query head, which carries the scale of the scores (1 / sqrt(d)), and of every key head.
    rotation : array, (positions, rotated pairs, 2)
        Cosine and sine for the channels 2 j and 2 j + 1 of every head at every position; no pairs: no rotation.
    eps : float, >= 0, or None
        Added to the mean square. None: queries and keys are scaled and not normed.
    out : array, (M, H d), optional
        Written and returned. New memory if left out.
    is_block : bool
        Every row sees all M rows, as in the block of a diffusion drafter, instead of itself and those before it.
    window : int, >= 1, optional
        How many tokens up to its own a row sees; all if left out.

    Returns
    -------
    array, (M, H d)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated, d is no multiple of 16, or the rows do not fit into the cache.
    """
    num_groups, capacity, dim = keys.shape
    num_rows, end = projected.shape[0], position + projected.shape[0]
    for name, array in (("keys", keys), ("values", values)):
        if array.shape != keys.shape or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise ValueError(
                f"{name}: got {array.shape} {array.dtype} {array.strides}, expected {keys.shape} float32, contiguous"
            )
    if num_rows < 1 or position < 0 or end > capacity or end > rotation.shape[0]:
        raise ValueError(
            f"position: got {num_rows} rows at {position}, expected rows from 0 to {min(capacity, rotation.shape[0])}, "
            "the smaller of cache capacity and rotary table"
        )
    segments = np.array([[0, num_rows, position, address_of(keys), address_of(values), capacity, 0]])
    return _attend(
        projected, segments, num_groups, dim, num_rows * end, scales, rotation, eps, out, is_block, window
    )


def batch_attention(
    projected: NDArray[np.float32],
    segments: KvSegments,
    layer: int,
    scales: NDArray[np.float32],
    rotation: NDArray[np.float32],
    eps: float | None,
    *,
    is_block: bool = False,
    window: int | None = None,
) -> NDArray[np.float32]:
    """:func:`chain_attention` on rows of several sequences at once, each with the bits it has alone.

    Parameters
    ----------
    projected : array, (M, ...)
        The rows of a sequence in order, one sequence behind the other.
    segments
        Which rows are whose, and the caches. Rows of a tree get the bits that their root path has as a chain.
    layer : int
        Index into the caches.
    scales, rotation, eps, is_block, window
        As there; the rows of a sequence are its block.

    Returns
    -------
    array, (M, H d)

    Raises
    ------
    ValueError
        As there, or the layer does not exist.
    """
    if segments.num_positions > rotation.shape[0] or not 0 <= layer < len(segments.tables):
        raise ValueError(
            f"got rows up to position {segments.num_positions - 1} and layer {layer}, expected positions below "
            f"{rotation.shape[0]}, the rotary table, and layers below {len(segments.tables)}"
        )
    if projected.shape[0] != segments.num_rows:
        raise ValueError(
            f"projected: got {projected.shape[0]} rows, expected {segments.num_rows}, those of segments"
        )
    return _attend(
        projected,
        segments.tables[layer],
        segments.num_groups,
        segments.dim,
        segments.num_seen,
        scales,
        rotation,
        eps,
        None,
        is_block,
        window,
    )


def _attend(
    projected: NDArray[np.float32],
    segments: NDArray[np.int64],
    num_groups: int,
    dim: int,
    num_seen: int,
    scales: NDArray[np.float32],
    rotation: NDArray[np.float32],
    eps: float | None,
    out: NDArray[np.float32] | None,
    is_block: bool,
    window: int | None,
) -> NDArray[np.float32]:
    """``num_seen`` is how many tokens all rows see, about."""
    num_rows, num_heads = projected.shape[0], scales.shape[0] - num_groups
    if out is None:
        out = np.empty((num_rows, max(num_heads, 0) * dim), np.float32)
    if (
        dim % LANES
        or num_heads < 1
        or num_heads % num_groups
        or scales.shape[1] != dim
        or projected.shape[1] not in ((num_heads + 2 * num_groups) * dim, 2 * (num_heads + num_groups) * dim)
        or out.shape != (num_rows, num_heads * dim)
        or rotation.shape[1:] != (rotation.shape[1], 2)
        or 2 * rotation.shape[1] > dim
    ):
        raise ValueError(
            f"got projected {projected.shape}, {num_groups} key heads of {dim}, scales {scales.shape}, rotation "
            f"{rotation.shape}, out {out.shape}; expected (M, (H + 2 G) d) or, with gates, (M, (2 H + 2 G) d), "
            f"(H + G, d), (positions, at most d / 2, 2), (M, H d), H a multiple of G and d of {LANES}"
        )
    if eps is not None and eps < 0:
        raise ValueError(f"eps: got {eps}, expected 0 or more, or None")
    if window is not None and window < 1:
        raise ValueError(f"window: got {window}, expected 1 or more, or None")
    reach, added = rotation.shape[0] if window is None else window, -1.0 if eps is None else eps
    pool = pool_for(2 * num_seen * num_heads * dim)
    try:
        attend(projected, segments, num_groups, scales, rotation, added, is_block, reach, out, pool)
    except TypeError as error:
        names, arrays = ("projected", "scales", "rotation", "out"), (projected, scales, rotation, out)
        got = ", ".join(
            f"{name} {array.dtype} {array.strides}" for name, array in zip(names, arrays, strict=True)
        )
        raise ValueError(f"got {got} (dtype, strides); expected contiguous float32 arrays") from error
    return out
