"""Layers of the DFlash2 drafter with their cache of context keys and values.

Weights are packed once for speed on the CPU: q/k/v and gate/up side by side, the context's key and value
projections of all layers in one matrix, and the channels of every head in the order
:func:`specpilot.refengine.rope.pair_order` gives. Everything is float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.dflash2_config import DFlash2Config
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import pair_order, rotate_, rotation_table
from specpilot_kernels.silu_mul import silu_mul

__all__ = ["Backbone", "ContextCache"]

_Array = NDArray[np.float32]


@dataclass
class ContextCache:
    """Keys and values of committed tokens, float32, (layers, kv heads, capacity, head_dim), ``length`` of
    them valid.

    The rows after ``length`` are scratch for the block being drafted.
    """

    keys: Tensor
    values: Tensor
    length: int = 0


class _GroupedConv:
    """Convolution over the rows of a block, before and after a sublayer; its coefficients come from the
    sublayer's input.

    ``y[i, c] = sum_o (base[side, o, c] + delta[i, side, o, group(c)]) * x[i - o, c]``, where rows before the
    block count as 0.
    """

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], name: str) -> None:
        shape = (2, config.conv_kernel_size, config.num_groups, config.conv_group_size)
        self._base: _Array = tensors[f"{name}.base_kernel"].reshape(shape).numpy()
        self._delta = Projection(tensors[f"{name}.kernel_projection.weight"])

    def coefficients(self, x: _Array) -> _Array:
        """x (B, H) -> (2, taps, B, H): input side and output side."""
        sides, taps, groups, _ = self._base.shape
        delta = self._delta.arrays(x).reshape(-1, sides, taps, groups, 1)
        kernels: _Array = (self._base + delta).reshape(len(x), sides, taps, -1).transpose(1, 2, 0, 3)
        return kernels


def _convolve(x: _Array, coefficients: _Array) -> _Array:
    """x (B, H), coefficients (taps, B, H) -> (B, H), contiguous."""
    out: _Array = x * coefficients[0]
    for back in range(1, min(coefficients.shape[0], x.shape[0])):
        out[back:] += x[:-back] * coefficients[back, back:]
    return out


class _Layer:
    """Weights of one layer."""

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], name: str) -> None:
        attention, mlp, eps = f"{name}.self_attn", f"{name}.mlp", config.rms_norm_eps
        query = _in_pair_order(tensors[f"{attention}.q_proj.weight"], config)
        key = _in_pair_order(tensors[f"{attention}.k_proj.weight"], config)
        value = tensors[f"{attention}.v_proj.weight"]
        self.input_norm = RmsNorm(tensors[f"{name}.input_layernorm.weight"], eps)
        self.attention_conv = _GroupedConv(config, tensors, f"{name}.attention_conv")
        self.qkv = Projection(torch.cat((query, key, value)))
        # One norm for queries and keys; the scale of attention rides on the queries' weight.
        query_norm = _in_pair_order(tensors[f"{attention}.q_norm.weight"], config) * config.head_dim**-0.5
        self.key_norm = _in_pair_order(tensors[f"{attention}.k_norm.weight"], config)
        heads = (query_norm.expand(config.num_heads, -1), self.key_norm.expand(config.num_kv_heads, -1))
        self.query_key_norm = RmsNorm(torch.cat(heads), eps)
        self.out = Projection(tensors[f"{attention}.o_proj.weight"])
        self.post_norm = RmsNorm(tensors[f"{name}.post_attention_layernorm.weight"], eps)
        self.mlp_conv = _GroupedConv(config, tensors, f"{name}.mlp_conv")
        self.gate_up = Projection(
            torch.cat((tensors[f"{mlp}.gate_proj.weight"], tensors[f"{mlp}.up_proj.weight"]))
        )
        self.down = Projection(tensors[f"{mlp}.down_proj.weight"])
        self.context_key, self.context_value = key, value


def _in_pair_order(weight: Tensor, config: DFlash2Config) -> Tensor:
    """Reorder the output channels (heads * head_dim, ...) of a query or key weight within each head."""
    order = pair_order(config.head_dim, config.head_dim)
    by_head = weight.view(-1, config.head_dim, *weight.shape[1:])
    return by_head[:, order].flatten(0, 1)


class Backbone:
    """The drafter without selector and borrowed head."""

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor]) -> None:
        self._config = config
        self._layers = [_Layer(config, tensors, f"layers.{index}") for index in range(config.num_layers)]
        self._features = Projection(tensors["fc.weight"])
        self._features_norm = RmsNorm(tensors["hidden_norm.weight"], config.rms_norm_eps)
        keys, values = (
            [getattr(layer, f"context_{kind}") for layer in self._layers] for kind in ("key", "value")
        )
        self._context_keys_values = Projection(torch.cat((*keys, *values)))
        key_norms = [layer.key_norm.expand(config.num_kv_heads, -1) for layer in self._layers]
        self._context_key_norm = RmsNorm(torch.cat(key_norms), config.rms_norm_eps)
        self._norm = RmsNorm(tensors["norm.weight"], config.rms_norm_eps)
        self._rotation = self._rotation_table(0)

    def _rotation_table(self, num_positions: int) -> Tensor:
        config = self._config
        return rotation_table(num_positions, config.head_dim, config.rope_theta, torch.float32)[:, None]

    def new_cache(self, capacity: int) -> ContextCache:
        config = self._config
        if capacity > self._rotation.shape[0]:
            self._rotation = self._rotation_table(capacity)
        shape = (config.num_layers, config.num_kv_heads, capacity, config.head_dim)
        return ContextCache(torch.empty(shape), torch.empty(shape))

    def append_context(self, cache: ContextCache, taps: Tensor) -> None:
        """Add the keys and values of n committed tokens, made straight from their features. taps (n, taps *
        H)."""
        config, n, start, end = self._config, taps.shape[0], cache.length, cache.length + taps.shape[0]
        both = self._context_keys_values(self._features_norm(self._features(taps)))
        keys, values = both.unflatten(1, (2, -1, config.head_dim)).unbind(1)
        keys = self._context_key_norm(keys)
        rotate_(keys, self._rotation[start:end])
        by_layer = (n, config.num_layers, config.num_kv_heads, config.head_dim)
        cache.keys[:, :, start:end] = keys.view(by_layer).permute(1, 2, 0, 3)
        cache.values[:, :, start:end] = values.view(by_layer).permute(1, 2, 0, 3)
        cache.length = end

    def forward(self, cache: ContextCache, rows: Tensor) -> Tensor:
        """Run one block. rows (B, H) embeddings -> hidden (B, H) after the final norm; the context stays as
        it is."""
        x = np.array(rows.numpy())
        for index, layer in enumerate(self._layers):
            h = layer.input_norm.arrays(x)
            before, after = layer.attention_conv.coefficients(h)
            h = self._attend(
                layer, cache.keys[index], cache.values[index], cache.length, _convolve(h, before)
            )
            x += _convolve(h, after)
            h = layer.post_norm.arrays(x)
            before, after = layer.mlp_conv.coefficients(h)
            gated = silu_mul(layer.gate_up.arrays(_convolve(h, before)))
            x += _convolve(layer.down.arrays(gated), after)
        return torch.from_numpy(self._norm.arrays(x))

    def _attend(self, layer: _Layer, keys: Tensor, values: Tensor, start: int, x: _Array) -> _Array:
        """Attention of block rows x (B, H) over the context and, in both directions, over the block
        itself."""
        config, rows, end = self._config, x.shape[0], start + x.shape[0]
        heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        qkv = torch.from_numpy(layer.qkv.arrays(x)).view(rows, heads + 2 * kv_heads, dim)
        query_key = layer.query_key_norm(qkv[:, : heads + kv_heads])
        rotate_(query_key, self._rotation[start:end])
        keys[:, start:end] = query_key[:, heads:].transpose(0, 1)
        values[:, start:end] = qkv[:, heads + kv_heads :].transpose(0, 1)
        # Queries that share a key head are rows of one product: (kv heads, group * B, dim).
        query = (
            query_key[:, :heads].view(rows, kv_heads, -1, dim).permute(1, 2, 0, 3).reshape(kv_heads, -1, dim)
        )
        weights = torch.softmax(torch.bmm(query, keys[:, :end].transpose(1, 2)), dim=-1)
        mixed = torch.bmm(weights, values[:, :end]).view(heads, rows, dim)
        return layer.out.arrays(mixed.transpose(0, 1).reshape(rows, -1).numpy())
