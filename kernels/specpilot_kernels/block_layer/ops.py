"""The public function of the layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.block_layer.cpu_numba import run_layer
from specpilot_kernels.block_layer.reference import block_layer_reference
from specpilot_kernels.block_layer.weights import BlockLayerWeights
from specpilot_kernels.chain_attention import KvSegments
from specpilot_kernels.cpu_pool import SHARE_FROM, pool_for

__all__ = ["block_layer"]

_Array = NDArray[np.float32]
_NO_CONV = (np.empty((2, 0, 0, 0), np.float32), np.empty((0, 0, 16), np.uint16))


def block_layer(
    x: _Array,
    places: NDArray[np.int64],
    segments: KvSegments,
    layer: int,
    weights: BlockLayerWeights,
    rotation: _Array,
    eps: float,
) -> None:
    """Run blocks of rows through a layer, each behind its context, in place.

        h = rms_norm(x);  x += conv_1(attention(conv_0(h) Q^T) O^T);  h = rms_norm(x);  x += conv_1(mlp(conv_0(h)))

    Convolutions take their coefficients from h; without their weights there are none. A row's bits depend on its block
    and its context, and are those of the single operations (:mod:`specpilot_kernels.block_layer.reference`), which run
    one by one where a product is not BF16: between two of them stands Python, and a layer has 16.

    Parameters
    ----------
    x : array, float32, (R, H), contiguous
        One block behind the other.
    places : array, int64, (R,)
        A row's place in its block, 0 for the first.
    segments
        The blocks' rows and their caches; ``layer`` is an index into these.
    rotation : array, float32, (positions, rotated pairs, 2), contiguous
    eps
        Of all norms.

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    if (
        x.shape != (segments.num_rows, len(weights.input_scale))
        or places.shape != (segments.num_rows,)
        or (places < 0).any()
        or (places > np.arange(len(places))).any()
        or not 0 <= layer < len(segments.tables)
        or (segments.num_groups, segments.dim) != (weights.num_groups, weights.head_scales.shape[1])
        or segments.num_positions > rotation.shape[0]
        or 2 * rotation.shape[1] > segments.dim
        or eps < 0
    ):
        raise ValueError(
            f"got x {x.shape}, places {places}, layer {layer} of {len(segments.tables)}, {segments.num_rows} rows to "
            f"position {segments.num_positions - 1} over {segments.num_groups} key heads of {segments.dim}, rotation "
            f"{rotation.shape}, eps {eps}; expected (rows, {len(weights.input_scale)}), a place for each row, "
            f"{weights.num_groups} key heads of {weights.head_scales.shape[1]}, a rotation for every position"
        )
    if not weights.is_narrow:
        x[:] = block_layer_reference(x, places, segments, layer, weights, rotation, eps)
        return
    attention_conv = _NO_CONV if weights.attention_conv is None else weights.attention_conv.arrays
    mlp_conv = _NO_CONV if weights.mlp_conv is None else weights.mlp_conv.arrays
    # Of its largest product: the layer shares the ones that are worth it.
    pool = pool_for(x.shape[0] * weights.gate_up.panels.size)
    try:
        run_layer(
            x, places, segments.tables[layer], segments.num_groups, rotation, eps, weights.input_scale,
            weights.head_scales, weights.qkv.panels, weights.attention_out.panels, weights.post_scale,
            weights.gate_up.panels, weights.down.panels, *attention_conv, *mlp_conv, pool, SHARE_FROM,
        )  # fmt: skip
    except TypeError as error:
        raise ValueError(
            f"got x {x.dtype} {x.strides}, places {places.dtype} {places.strides}, rotation {rotation.dtype} "
            f"{rotation.strides} (dtype, strides); expected contiguous float32 and int64 arrays"
        ) from error
