"""What :mod:`specpilot_kernels.block_layer` computes, slow and obvious: the single operations, one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.block_conv import block_conv
from specpilot_kernels.block_layer.weights import BlockLayerWeights, ConvWeights
from specpilot_kernels.chain_attention import KvSegments, batch_attention
from specpilot_kernels.rms_norm import rms_norm
from specpilot_kernels.silu_mul import silu_mul
from specpilot_kernels.skinny_gemm import skinny_gemm_arrays

__all__ = ["block_layer_reference"]

_Array = NDArray[np.float32]
_Places = NDArray[np.int64]


def block_layer_reference(
    x: _Array,
    places: _Places,
    segments: KvSegments,
    layer: int,
    weights: BlockLayerWeights,
    rotation: _Array,
    eps: float,
) -> _Array:
    """The rows after the layer; new memory."""
    h = rms_norm(x, weights.input_scale, eps)
    projected = skinny_gemm_arrays(_convolve(weights.attention_conv, h, h, 0, places), weights.qkv)
    attended = batch_attention(projected, segments, layer, weights.head_scales, rotation, eps, is_block=True)
    y = skinny_gemm_arrays(attended, weights.attention_out)
    x = x + _convolve(weights.attention_conv, h, y, 1, places)
    h = rms_norm(x, weights.post_scale, eps)
    both = skinny_gemm_arrays(_convolve(weights.mlp_conv, h, h, 0, places), weights.gate_up)
    y = skinny_gemm_arrays(silu_mul(both), weights.down)
    return np.asarray(x + _convolve(weights.mlp_conv, h, y, 1, places))


def _convolve(conv: ConvWeights | None, h: _Array, y: _Array, side: int, places: _Places) -> _Array:
    """``y`` convolved with what the sublayer's input ``h`` says."""
    if conv is None:
        return y
    _, taps, groups, _ = conv.base.shape
    deltas = skinny_gemm_arrays(h, conv.delta).reshape(len(h), 2, taps, groups)
    return block_conv(y, conv.base[side], np.ascontiguousarray(deltas[:, side]), places)
