"""A dense target in float64, one obvious line after the other: what the compiled layers are to compute.

Written from the models' papers and cards, for families that the installed transformers does not have; on those it has,
the tests hold this file against it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.refengine.dense_config import DenseConfig

__all__ = ["dense_logits"]


def dense_logits(config: DenseConfig, tensors: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """Logits (T, V) of all T tokens at once, float64."""
    weights = {name: tensor.double() for name, tensor in tensors.items()}
    prefix = config.tensor_prefix
    embedding = weights[f"{prefix}embed_tokens.weight"]
    x = embedding[ids] * config.embedding_scale
    if config.has_embedding_norm:
        x = norm(x, torch.ones(1), config.norm_eps)
    for number in range(config.num_layers):
        layer = {
            name.removeprefix(f"{prefix}layers.{number}.").removesuffix(".weight"): tensor
            for name, tensor in weights.items()
            if name.startswith(f"{prefix}layers.{number}.")
        }
        x = run_layer(config, layer, number, x)
    x = norm(x, config.is_final_norm_centred + weights[f"{prefix}norm.weight"], config.norm_eps)
    z = config.logit_scale * (x @ (embedding if config.tie_word_embeddings else weights["lm_head.weight"]).T)
    return z if config.logit_cap is None else config.logit_cap * torch.tanh(z / config.logit_cap)


def run_layer(config: DenseConfig, layer: Mapping[str, Tensor], number: int, x: Tensor) -> Tensor:
    def normed(name: str, x: Tensor, eps: float = config.norm_eps) -> Tensor:
        return norm(x, config.is_norm_centred + layer[f"{name}_layernorm"], eps)

    attended = attend(config, layer, number, normed("input", x))
    if config.has_post_norms:
        attended = normed("post_attention", attended, config.post_norm_eps)
    x = x + attended
    inner = normed("pre_feedforward" if config.has_post_norms else "post_attention", x)
    gate = inner @ layer["mlp.gate_proj"].T
    gate = F.silu(gate) if config.activation == "silu" else F.gelu(gate, approximate="tanh")
    fed = (gate * (inner @ layer["mlp.up_proj"].T)) @ layer["mlp.down_proj"].T
    if config.has_post_norms:
        fed = normed("post_feedforward", fed, config.post_norm_eps)
    return x + fed


def attend(config: DenseConfig, layer: Mapping[str, Tensor], number: int, x: Tensor) -> Tensor:
    num_tokens, dim = x.shape[0], config.head_dim
    queries, keys, values = (
        (x @ layer[f"self_attn.{name}_proj"].T).view(num_tokens, -1, dim).transpose(0, 1) for name in "qkv"
    )
    if config.qk_norm == "unit":
        queries, keys = (norm(rows, torch.ones(1), config.norm_eps) for rows in (queries, keys))
    elif config.qk_norm == "scaled":
        queries = norm(queries, config.is_norm_centred + layer["self_attn.q_norm"], config.norm_eps)
        keys = norm(keys, config.is_norm_centred + layer["self_attn.k_norm"], config.norm_eps)
    rope = config.ropes[number]
    if rope is not None:
        frequencies = rope.frequencies(dim).double()
        angles = torch.arange(num_tokens)[:, None] * frequencies
        queries, keys = rotate(queries, angles), rotate(keys, angles)
    keys, values = (
        rows.repeat_interleave(config.num_heads // config.num_kv_heads, 0) for rows in (keys, values)
    )
    scores = queries @ keys.transpose(1, 2) * config.score_scale
    behind = torch.arange(num_tokens)[:, None] - torch.arange(num_tokens)
    window = config.window_of(number)
    is_hidden = (behind < 0) | (behind >= (num_tokens if window is None else window))
    attended = torch.softmax(scores.masked_fill(is_hidden, -torch.inf), -1) @ values
    attended = attended.transpose(0, 1).reshape(num_tokens, -1)
    if config.has_attention_gate:
        attended = attended * torch.sigmoid(x @ layer["self_attn.gate_proj"].T)
    return attended @ layer["self_attn.o_proj"].T


def norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * scale


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Channel j and channel j + dim / 2 of every head are a pair."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)
