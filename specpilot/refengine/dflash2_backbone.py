"""Layers of the DFlash2 drafter with their cache of context keys and values.

Weights are packed once for speed on the CPU: transposed, q/k/v and gate/up side by side, and the context's
key and value projections of all layers in one matrix. Everything is float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.refengine.dflash2_config import DFlash2Config

__all__ = ["Backbone", "ContextCache", "rms_norm"]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale the last axis to unit mean square, times ``weight`` (the plain form, not the target's 1 +
    weight)."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@dataclass
class ContextCache:
    """Keys and values of committed tokens, float32, (layers, kv heads, capacity, head_dim), ``length`` of
    them valid.

    The rows after ``length`` are scratch for the block being drafted.
    """

    keys: Tensor
    values: Tensor
    length: int = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]


class Rotary:
    """Rotate-half position tables, float32, grown on demand: ``x * cos + swap_halves(x) * sin``."""

    def __init__(self, head_dim: int, theta: float) -> None:
        self.frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        self.cos = self.sin = torch.empty(0, head_dim)

    def tables(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """Tables (count, head_dim) of positions ``start ..``; the first half of ``sin`` carries the minus
        sign."""
        end = start + count
        if end > self.cos.shape[0]:
            angles = torch.arange(2 * end, dtype=torch.float64)[:, None] * self.frequencies
            self.cos = angles.cos().repeat(1, 2).float()
            self.sin = torch.cat((-angles.sin(), angles.sin()), dim=1).float()
        return self.cos[start:end], self.sin[start:end]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


class GroupedConv:
    """Convolution over the rows of a block, before and after a sublayer, with coefficients made from the
    sublayer's input.

    ``y[i, c] = sum_o (base[side, o, c] + delta[i, side, o, group(c)]) * x[i - o, c]``, rows before the block
    counting as 0.
    """

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], prefix: str) -> None:
        shape = (2, config.conv_kernel_size, config.num_groups, config.conv_group_size)
        self.base = tensors[f"{prefix}.base_kernel"].view(shape)
        self.projection = tensors[f"{prefix}.kernel_projection.weight"].T.contiguous()

    def coefficients(self, x: Tensor) -> Tensor:
        """x (B, H) -> (2, taps, B, H): input side and output side."""
        sides, taps, groups, group_size = self.base.shape
        delta = torch.mm(x, self.projection).view(-1, sides, taps, groups, 1)
        return (self.base + delta).view(-1, sides, taps, groups * group_size).permute(1, 2, 0, 3)


def convolve(x: Tensor, coefficients: Tensor) -> Tensor:
    """x (B, H), coefficients (taps, B, H) -> (B, H)."""
    out = x * coefficients[0]
    for back in range(1, min(coefficients.shape[0], x.shape[0])):
        out[back:].addcmul_(x[:-back], coefficients[back, back:])
    return out


class Layer:
    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], prefix: str) -> None:
        def packed(*names: str) -> Tensor:
            return torch.cat([tensors[f"{prefix}.{name}_proj.weight"] for name in names]).T.contiguous()

        self.input_norm = tensors[f"{prefix}.input_layernorm.weight"]
        self.attention_conv = GroupedConv(config, tensors, f"{prefix}.attention_conv")
        self.qkv = packed("self_attn.q", "self_attn.k", "self_attn.v")
        self.out = packed("self_attn.o")
        self.post_norm = tensors[f"{prefix}.post_attention_layernorm.weight"]
        self.mlp_conv = GroupedConv(config, tensors, f"{prefix}.mlp_conv")
        self.gate_up = packed("mlp.gate", "mlp.up")
        self.down = packed("mlp.down")
        # One norm call for queries and keys; the attention scale rides on the query's weight.
        query = tensors[f"{prefix}.self_attn.q_norm.weight"] * config.head_dim**-0.5
        key = tensors[f"{prefix}.self_attn.k_norm.weight"]
        self.query_key_norm = torch.cat(
            (query.expand(config.num_heads, -1), key.expand(config.num_kv_heads, -1))
        )


class Backbone:
    """The drafter's layers without selector and borrowed head."""

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor]) -> None:
        self.config = config
        names = [f"layers.{index}" for index in range(config.num_layers)]
        self.layers = [Layer(config, tensors, name) for name in names]
        self.fc = tensors["fc.weight"].T.contiguous()
        self.hidden_norm = tensors["hidden_norm.weight"]
        self.norm = tensors["norm.weight"]
        projections = [tensors[f"{name}.self_attn.{kind}_proj.weight"] for kind in "kv" for name in names]
        self.context_kv = torch.cat(projections).T.contiguous()
        self.key_norm = torch.stack([tensors[f"{name}.self_attn.k_norm.weight"] for name in names])[:, None]
        self.rotary = Rotary(config.head_dim, config.rope_theta)

    def new_cache(self, capacity: int) -> ContextCache:
        config = self.config
        shape = (config.num_layers, config.num_kv_heads, capacity, config.head_dim)
        return ContextCache(torch.empty(shape), torch.empty(shape))

    def append_context(self, cache: ContextCache, taps: Tensor) -> None:
        """Add the keys and values of n committed tokens, made straight from their features. taps (n, taps *
        H)."""
        config, n, start = self.config, taps.shape[0], cache.length
        features = rms_norm(torch.mm(taps, self.fc), self.hidden_norm, config.rms_norm_eps)
        both = torch.mm(features, self.context_kv)
        keys, values = both.view(n, 2, config.num_layers, config.num_kv_heads, config.head_dim).unbind(1)
        cos, sin = self.rotary.tables(start, n)
        keys = rotate(
            rms_norm(keys, self.key_norm, config.rms_norm_eps), cos[:, None, None], sin[:, None, None]
        )
        cache.keys[:, :, start : start + n] = keys.permute(1, 2, 0, 3)
        cache.values[:, :, start : start + n] = values.permute(1, 2, 0, 3)
        cache.length += n

    def forward(self, cache: ContextCache, rows: Tensor) -> Tensor:
        """Run one block. rows (B, H) input embeddings -> hidden (B, H) after the final norm; the context
        stays as it is."""
        eps = self.config.rms_norm_eps
        tables = self.rotary.tables(cache.length, rows.shape[0])
        x = rows
        for index, layer in enumerate(self.layers):
            h = rms_norm(x, layer.input_norm, eps)
            before, after = layer.attention_conv.coefficients(h)
            h = self._attend(
                layer, cache.keys[index], cache.values[index], cache.length, convolve(h, before), tables
            )
            x = x + convolve(h, after)
            h = rms_norm(x, layer.post_norm, eps)
            before, after = layer.mlp_conv.coefficients(h)
            gate, up = torch.mm(convolve(h, before), layer.gate_up).chunk(2, dim=-1)
            x = x + convolve(torch.mm(F.silu(gate) * up, layer.down), after)
        return rms_norm(x, self.norm, eps)

    def _attend(
        self, layer: Layer, keys: Tensor, values: Tensor, start: int, x: Tensor, tables: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Attention of block rows x (B, H) over the context and, in both directions, over the block
        itself."""
        config, rows = self.config, x.shape[0]
        heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        qkv = torch.mm(x, layer.qkv).view(rows, heads + 2 * kv_heads, dim)
        query_key = rms_norm(qkv[:, : heads + kv_heads], layer.query_key_norm, config.rms_norm_eps)
        query_key = rotate(query_key, tables[0][:, None], tables[1][:, None])
        end = start + rows
        keys[:, start:end] = query_key[:, heads:].transpose(0, 1)
        values[:, start:end] = qkv[:, heads + kv_heads :].transpose(0, 1)
        # Queries that share a key head are rows of one product: (kv heads, group * B, dim).
        query = (
            query_key[:, :heads].view(rows, kv_heads, -1, dim).permute(1, 2, 0, 3).reshape(kv_heads, -1, dim)
        )
        weights = torch.softmax(torch.bmm(query, keys[:, :end].transpose(1, 2)), dim=-1)
        mixed = torch.bmm(weights, values[:, :end]).view(heads, rows, dim)
        return torch.mm(mixed.transpose(0, 1).reshape(rows, -1), layer.out)
