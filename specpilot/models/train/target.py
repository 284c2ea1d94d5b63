"""Trainable form of the Qwen3.5 text target: batched, differentiable, no caches.

Parameter names and layouts are Hugging Face's, so ``state_dict`` is the checkpoint. It shares the chunk form of the
gated delta rule with the reference engine; a test compares the two models' logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.gdn import chunk_gated_delta_rule

__all__ = [
    "DOCUMENT_RESET",
    "GatedAttention",
    "GatedDeltaNet",
    "GatedMlp",
    "PlainNorm",
    "TargetLayer",
    "TrainTarget",
    "ZeroCentredNorm",
    "document_mask",
    "rope_tables",
    "rotate",
]

# Log-decay put on the first token of a document: exp(-60) wipes the state of the document before it.
DOCUMENT_RESET = -60.0


class ZeroCentredNorm(nn.Module):
    """RMS norm whose stored weight is the scale minus one (Qwen3.5's convention)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], 1.0 + self.weight.float(), self.eps).to(x.dtype)


class PlainNorm(nn.Module):
    """RMS norm whose stored weight is the scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), self.eps).to(x.dtype)


def rope_tables(length: int, rotary_dim: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of shape (length, rotary_dim), float32, halves repeated (neox layout)."""
    inverse = theta ** -(torch.arange(0, rotary_dim, 2, device=device, dtype=torch.float32) / rotary_dim)
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first ``cos.shape[-1]`` entries of each head. x (..., T, head_dim); cos, sin (..., T, rotary_dim)."""
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1).to(x.dtype)


def document_mask(starts: Tensor) -> Tensor:
    """Causal mask within documents. starts (B, T) bool, true at a document's first token -> (B, 1, T, T) bool."""
    document = starts.long().cumsum(-1)
    same = document[:, :, None] == document[:, None, :]
    return (same & torch.ones(starts.shape[1:] * 2, dtype=torch.bool, device=starts.device).tril())[:, None]


class GatedAttention(nn.Module):
    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = (
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
        )
        width = self.num_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, 2 * width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.num_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = ZeroCentredNorm(self.head_dim, config.norm_eps)
        self.k_norm = ZeroCentredNorm(self.head_dim, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, gate = self.q_proj(x).view(batch, length, self.num_heads, 2 * self.head_dim).chunk(2, dim=-1)
        key = self.k_proj(x).view(batch, length, self.num_kv_heads, self.head_dim)
        value = self.v_proj(x).view(batch, length, self.num_kv_heads, self.head_dim).transpose(1, 2)
        query = rotate(self.q_norm(query).transpose(1, 2), cos, sin)
        key = rotate(self.k_norm(key).transpose(1, 2), cos, sin)
        groups = self.num_heads // self.num_kv_heads
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
        mixed: Tensor = self.o_proj((out * gate.sigmoid()).reshape(batch, length, -1))
        return mixed


class GatedDeltaNet(nn.Module):
    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        key_dim = config.gdn_num_key_heads * config.gdn_key_dim
        self.splits = [key_dim, key_dim, config.gdn_num_value_heads * config.gdn_value_dim]
        conv_dim = sum(self.splits)
        self.in_proj_qkv = nn.Linear(config.hidden_size, conv_dim, bias=False)
        self.in_proj_z = nn.Linear(config.hidden_size, self.splits[2], bias=False)
        self.in_proj_b = nn.Linear(config.hidden_size, config.gdn_num_value_heads, bias=False)
        self.in_proj_a = nn.Linear(config.hidden_size, config.gdn_num_value_heads, bias=False)
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, config.gdn_conv_size, groups=conv_dim, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(config.gdn_num_value_heads))
        self.A_log = nn.Parameter(torch.zeros(config.gdn_num_value_heads))
        self.norm = PlainNorm(config.gdn_value_dim, config.norm_eps)
        self.out_proj = nn.Linear(self.splits[2], config.hidden_size, bias=False)

    def convolve(self, x: Tensor, age: Tensor) -> Tensor:
        """Causal short convolution that does not look past a document's start. age (B, T): tokens since the start."""
        taps = self.conv1d.weight[:, 0].to(x.dtype)  # (C, size), last tap is the present token
        size = taps.shape[1]
        out = x * taps[:, -1]
        for back in range(1, size):
            shifted = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]
            out = out + shifted * (age >= back)[..., None].to(x.dtype) * taps[:, size - 1 - back]
        return F.silu(out)

    def forward(self, x: Tensor, starts: Tensor, age: Tensor) -> Tensor:
        config, (batch, length, _) = self.config, x.shape
        mixed = self.convolve(self.in_proj_qkv(x), age)
        query, key, value = mixed.split(self.splits, dim=-1)
        repeat = config.gdn_num_value_heads // config.gdn_num_key_heads

        def heads(tensor: Tensor, size: int, times: int) -> Tensor:
            return tensor.view(batch, length, -1, size).transpose(1, 2).float().repeat_interleave(times, 1)

        query = heads(query, config.gdn_key_dim, repeat)
        key = heads(key, config.gdn_key_dim, repeat)
        query = query * torch.rsqrt(query.square().sum(-1, keepdim=True) + 1e-6) * config.gdn_key_dim**-0.5
        key = key * torch.rsqrt(key.square().sum(-1, keepdim=True) + 1e-6)
        value = heads(value, config.gdn_value_dim, 1)
        decay = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        decay = torch.where(starts[..., None], DOCUMENT_RESET, decay).transpose(1, 2)
        write = self.in_proj_b(x).float().sigmoid().transpose(1, 2)
        with torch.autocast(x.device.type, enabled=False):
            out = chunk_gated_delta_rule(query, key, value, decay, write, None)[0]
        out = out.transpose(1, 2)
        gate = F.silu(self.in_proj_z(x).view(batch, length, -1, config.gdn_value_dim).float())
        out = self.norm(out) * gate
        result: Tensor = self.out_proj(out.reshape(batch, length, -1).to(x.dtype))
        return result


class GatedMlp(nn.Module):
    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class TargetLayer(nn.Module):
    def __init__(self, config: TargetConfig, kind: str) -> None:
        super().__init__()
        self.input_layernorm = ZeroCentredNorm(config.hidden_size, config.norm_eps)
        self.post_attention_layernorm = ZeroCentredNorm(config.hidden_size, config.norm_eps)
        self.mlp = GatedMlp(config.hidden_size, config.intermediate_size)
        if kind == "full_attention":
            self.self_attn = GatedAttention(config)
        else:
            self.linear_attn = GatedDeltaNet(config)


class _Layers(nn.ModuleList):
    """A module list that knows what it holds."""

    def __iter__(self) -> Iterator[TargetLayer]:
        return cast(Iterator[TargetLayer], super().__iter__())


class _Body(nn.Module):
    """What the checkpoint calls ``model``: everything but the head."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = _Layers(TargetLayer(config, kind) for kind in config.layer_types)
        self.norm = ZeroCentredNorm(config.hidden_size, config.norm_eps)


class TrainTarget(nn.Module):
    """``forward`` gives the final-norm hidden states and, if asked, the outputs of the layers ``taps``."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.model = _Body(config)

    def initialise(self, seed: int) -> None:
        """Normal(0, 0.02) matrices, residual outputs scaled down by depth, decay rates spread over time scales."""
        generator = torch.Generator().manual_seed(seed)
        depth_scale = (2 * len(self.model.layers)) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                std = 0.02 if "embed" in name else (parameter[0].numel()) ** -0.5
                std *= (
                    depth_scale
                    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
                    else 1.0
                )
                parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * std)
            elif name.endswith("A_log"):
                parameter.data.copy_(torch.empty(parameter.shape).uniform_(1, 16, generator=generator).log())
            elif name.endswith("dt_bias"):
                step = torch.empty(parameter.shape).uniform_(-6.9, -2.3, generator=generator).exp()
                parameter.data.copy_(step + torch.log(-torch.expm1(-step)))  # inverse softplus

    def forward(
        self, ids: Tensor, starts: Tensor, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """ids (B, T) int64, starts (B, T) bool -> hidden (B, T, H), taps (B, T, len(taps) * H) or None."""
        config = self.config
        index = torch.arange(ids.shape[1], device=ids.device)
        begin = torch.where(starts, index, 0).cummax(-1).values
        age = index - begin
        cos, sin = rope_tables(ids.shape[1], config.rotary_dim, config.rope_theta, ids.device)
        mask = document_mask(starts)
        x = self.model.embed_tokens(ids)
        kept = []
        for index_, layer in enumerate(self.model.layers):
            normed = layer.input_layernorm(x)
            if config.layer_types[index_] == "full_attention":
                x = x + layer.self_attn(normed, cos, sin, mask)
            else:
                x = x + layer.linear_attn(normed, starts, age)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            if index_ in taps:
                kept.append(x)
        return self.model.norm(x), torch.cat(kept, -1) if taps else None

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.embed_tokens.weight)
