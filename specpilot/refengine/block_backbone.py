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
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.block_config import BlockConfig
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import pair_order, rotation_table
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments, batch_attention
from specpilot_kernels.context_write import context_write
from specpilot_kernels.silu_mul import silu_mul

__all__ = ["Backbone", "ContextCache", "Mixer", "unmixed"]

_Array = NDArray[np.float32]
_Places = NDArray[np.int64]


@dataclass
class ContextCache:
    """Keys and values of the first ``length`` tokens; what stands behind them is scratch for the block being
    drafted."""

    memory: KvMemory
    length: int = 0


class Mixer(Protocol):
    """Wraps a sublayer: what goes into it and what comes out may be mixed over the rows of a block.

    ``places`` (R,) are the rows' places in their blocks, 0 for the first of each.
    """

    def before(self, x: _Array, places: _Places) -> _Array:
        """The sublayer's input, from x (R, H)."""
        ...

    def after(self, x: _Array, y: _Array, places: _Places) -> _Array:
        """What joins the residual stream, from the sublayer's output y (R, H) and what :meth:`before` got."""
        ...


class _Unmixed:
    def before(self, x: _Array, places: _Places) -> _Array:
        return x

    def after(self, x: _Array, y: _Array, places: _Places) -> _Array:
        return y


def unmixed(name: str) -> Mixer:
    """Sublayers as they are, for a drafter without mixing."""
    return _Unmixed()


class _Layer:
    """Weights of one layer."""

    def __init__(
        self, config: BlockConfig, tensors: dict[str, Tensor], name: str, mixer_of: Callable[[str], Mixer]
    ) -> None:
        attention, mlp, eps = f"{name}.self_attn", f"{name}.mlp", config.rms_norm_eps
        query = _in_pair_order(tensors[f"{attention}.q_proj.weight"], config)
        key = _in_pair_order(tensors[f"{attention}.k_proj.weight"], config)
        value = tensors[f"{attention}.v_proj.weight"]
        self.input_norm = RmsNorm(tensors[f"{name}.input_layernorm.weight"], eps)
        self.attention_mixer = mixer_of(f"{name}.attention_conv")
        self.qkv = Projection(torch.cat((query, key, value)))
        # One norm for queries and keys; the scale of attention rides on the queries' weight.
        query_norm = _in_pair_order(tensors[f"{attention}.q_norm.weight"], config) * config.head_dim**-0.5
        self.key_norm = _in_pair_order(tensors[f"{attention}.k_norm.weight"], config)
        heads = (query_norm.expand(config.num_heads, -1), self.key_norm.expand(config.num_kv_heads, -1))
        self.query_key_scales: _Array = torch.cat(heads).numpy()
        self.out = Projection(tensors[f"{attention}.o_proj.weight"])
        self.post_norm = RmsNorm(tensors[f"{name}.post_attention_layernorm.weight"], eps)
        self.mlp_mixer = mixer_of(f"{name}.mlp_conv")
        self.gate_up = Projection(
            torch.cat((tensors[f"{mlp}.gate_proj.weight"], tensors[f"{mlp}.up_proj.weight"]))
        )
        self.down = Projection(tensors[f"{mlp}.down_proj.weight"])
        self.context_key, self.context_value = key, value


def _in_pair_order(weight: Tensor, config: BlockConfig) -> Tensor:
    """Reorder the output channels (heads * head_dim, ...) of a query or key weight within each head."""
    order = pair_order(config.head_dim, config.head_dim)
    by_head = weight.view(-1, config.head_dim, *weight.shape[1:])
    return by_head[:, order].flatten(0, 1)


class Backbone:
    """A drafter up to its final norm; ``mixer_of`` gives the mixer of a sublayer by its name in the checkpoint."""

    def __init__(
        self, config: BlockConfig, tensors: dict[str, Tensor], mixer_of: Callable[[str], Mixer] = unmixed
    ) -> None:
        self._config = config
        names = [f"layers.{index}" for index in range(config.num_layers)]
        self._layers = [_Layer(config, tensors, name, mixer_of) for name in names]
        self._features = Projection(tensors["fc.weight"])
        self._features_norm = RmsNorm(tensors["hidden_norm.weight"], config.rms_norm_eps)
        keys, values = (
            [getattr(layer, f"context_{kind}") for layer in self._layers] for kind in ("key", "value")
        )
        self._context_keys_values = Projection(torch.cat((*keys, *values)))
        key_scales = [layer.key_norm.expand(config.num_kv_heads, -1) for layer in self._layers]
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
            h = layer.input_norm.arrays(x)
            mixer = layer.attention_mixer
            attended = batch_attention(
                layer.qkv.arrays(mixer.before(h, places)), segments, index, layer.query_key_scales, self._rotation,
                self._config.rms_norm_eps, is_block=True,
            )  # fmt: skip
            x += mixer.after(h, layer.out.arrays(attended), places)
            h = layer.post_norm.arrays(x)
            mixer = layer.mlp_mixer
            gated = silu_mul(layer.gate_up.arrays(mixer.before(h, places)))
            x += mixer.after(h, layer.down.arrays(gated), places)
        return self._norm.arrays(x)
