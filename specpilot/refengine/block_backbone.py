"""Layers of the block drafters (DFlash2, DSpark) with their cache of context keys and values.

Weights are packed once for speed on the CPU: q/k/v and gate/up side by side, the context's key and value
projections of all layers in one matrix, and the channels of every head in the order
:func:`specpilot.refengine.rope.pair_order` gives. Everything is float32 and runs in compiled kernels, whose rows do not
depend on how many are computed together: context may come in any chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.block_config import BlockConfig
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import pair_order, rotation_table
from specpilot_kernels.block_layer import BlockLayerWeights, ConvWeights, block_layer
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments
from specpilot_kernels.context_write import context_write
from specpilot_kernels.skinny_gemm import PackedWeight

__all__ = ["Backbone", "ContextCache"]

_Array = NDArray[np.float32]


@dataclass
class ContextCache:
    """Keys and values of the first ``length`` tokens; what stands behind them is scratch for the block being
    drafted."""

    memory: KvMemory
    length: int = 0


def _layer_weights(
    config: BlockConfig,
    tensors: dict[str, Tensor],
    name: str,
    conv_of: Callable[[str], ConvWeights | None],
) -> BlockLayerWeights:
    """Weights of layer ``name`` of a checkpoint, packed."""
    attention, mlp = f"{name}.self_attn", f"{name}.mlp"
    query, key, value = (tensors[f"{attention}.{one}_proj.weight"] for one in "qkv")
    # One norm for queries and keys; the scale of attention rides on the queries' weight.
    query_norm = _in_pair_order(tensors[f"{attention}.q_norm.weight"], config) * config.head_dim**-0.5
    heads = query_norm.expand(config.num_heads, -1), _key_scales(config, tensors, name)
    return BlockLayerWeights(
        tensors[f"{name}.input_layernorm.weight"].numpy(),
        torch.cat(heads).numpy(),
        PackedWeight.pack(_in_pair_order(query, config), _in_pair_order(key, config), value),
        PackedWeight.pack(tensors[f"{attention}.o_proj.weight"]),
        tensors[f"{name}.post_attention_layernorm.weight"].numpy(),
        PackedWeight.pack(tensors[f"{mlp}.gate_proj.weight"], tensors[f"{mlp}.up_proj.weight"]),
        PackedWeight.pack(tensors[f"{mlp}.down_proj.weight"]),
        conv_of(f"{name}.attention_conv"),
        conv_of(f"{name}.mlp_conv"),
    )


def _key_scales(config: BlockConfig, tensors: dict[str, Tensor], name: str) -> Tensor:
    """(key heads, head_dim)"""
    scale = _in_pair_order(tensors[f"{name}.self_attn.k_norm.weight"], config)
    return scale.expand(config.num_kv_heads, -1)


def _in_pair_order(weight: Tensor, config: BlockConfig) -> Tensor:
    """Reorder the output channels (heads * head_dim, ...) of a query or key weight within each head."""
    order = pair_order(config.head_dim, config.head_dim)
    by_head = weight.view(-1, config.head_dim, *weight.shape[1:])
    return by_head[:, order].flatten(0, 1)


class Backbone:
    """A drafter up to its final norm; ``conv_of`` gives the convolution of a sublayer by its name in the checkpoint."""

    def __init__(
        self,
        config: BlockConfig,
        tensors: dict[str, Tensor],
        conv_of: Callable[[str], ConvWeights | None] = lambda name: None,
    ) -> None:
        self._config = config
        names = [f"layers.{index}" for index in range(config.num_layers)]
        self._layers = [_layer_weights(config, tensors, name, conv_of) for name in names]
        self._features = Projection(tensors["fc.weight"])
        self._features_norm = RmsNorm(tensors["hidden_norm.weight"], config.rms_norm_eps)
        keys, values = ([tensors[f"{name}.self_attn.{one}_proj.weight"] for name in names] for one in "kv")
        keys = [_in_pair_order(key, config) for key in keys]
        self._context_keys_values = Projection(torch.cat((*keys, *values)))
        key_scales = [_key_scales(config, tensors, name) for name in names]
        self._context_key_scales: _Array = torch.cat(key_scales).numpy()
        self._norm = RmsNorm(tensors["norm.weight"], config.rms_norm_eps)
        self._rotation, self._rotation_grows = self._rotation_table(0), threading.Lock()

    def _rotation_table(self, num_positions: int) -> _Array:
        config = self._config
        table = rotation_table(num_positions, config.head_dim, config.rope_theta, torch.float32)
        # Complex numbers as cosine and sine side by side.
        pairs: _Array = torch.view_as_real(table).contiguous().numpy()
        return pairs

    def new_cache(self, capacity: int) -> ContextCache:
        config = self._config
        with self._rotation_grows:  # requests begin on several threads
            if capacity > len(self._rotation):
                self._rotation = self._rotation_table(capacity)
        return ContextCache(KvMemory(config.num_layers, config.num_kv_heads, config.head_dim, capacity))

    def append_context(self, cache: ContextCache, taps: _Array) -> None:
        """Add the keys and values of n committed tokens, made straight from their features. taps (n, taps *
        H)."""
        features = self._features_norm.arrays(self._features.arrays(taps))
        projected = self._context_keys_values.arrays(features)
        scales, eps = self._context_key_scales, self._config.rms_norm_eps
        cache.memory.reserve(cache.length + len(taps))
        context_write(projected, cache.memory.buffer, cache.length, scales, self._rotation, eps)
        cache.length += len(taps)

    def forward(self, caches: Sequence[ContextCache], rows: _Array, sizes: Sequence[int]) -> _Array:
        """Run a block behind each of several contexts, which stay as they are.

        Parameters
        ----------
        rows : array, (R, H)
            Embeddings, one block behind the other. A block's result does not depend on the others.
        sizes
            Rows of each block.

        Returns
        -------
        array, (R, H)
            Hidden rows after the final norm.
        """
        for cache, size in zip(caches, sizes, strict=True):
            cache.memory.reserve(cache.length + size)
        segments = KvSegments(
            [KvPart(cache.memory, size, cache.length) for cache, size in zip(caches, sizes, strict=True)]
        )
        places = np.concatenate([np.arange(size) for size in sizes])
        x = rows.copy()
        for index, layer in enumerate(self._layers):
            block_layer(x, places, segments, index, layer, self._rotation, self._config.rms_norm_eps)
        return self._norm.arrays(x)
