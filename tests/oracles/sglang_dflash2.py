"""Oracle: SGLang 0.5.20's block drafters (DFlash2; DSpark's block is the same without convolutions), written down
plainly from their equations.

Batched, float32, no cache: the context's keys and values are recomputed from the taps on every
call. Sources in the wheel: srt/models/dflash.py (layers, convolution, selector),
srt/speculative/dflash_worker_v2.py (block tokens and positions, context keys and values from projected taps).
Independent of ``specpilot``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x / (x.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt())


def _rope(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """x (b, n, heads, d), positions (b, n): neox style, both halves rotated against each other."""
    half = x.shape[-1] // 2
    inverse = 1.0 / theta ** (torch.arange(half, dtype=torch.float32) * 2 / x.shape[-1])
    angle = (positions[..., None] * inverse)[:, :, None]
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _conv(x: Tensor, base: Tensor, delta: Tensor, group_size: int) -> Tensor:
    """x (b, B, H), base (taps, H), delta (b, B, taps, groups): one loop per row and tap."""
    out = torch.zeros_like(x)
    for row in range(x.shape[1]):
        for tap in range(base.shape[0]):
            if row >= tap:
                kernel = base[tap] + delta[:, row, tap].repeat_interleave(group_size, dim=-1)
                out[:, row] += kernel * x[:, row - tap]
    return out


def block_hidden(
    config: dict[str, Any], weights: Weights, embedding: Tensor, taps: Tensor, block_ids: Tensor
) -> Tensor:
    """Hidden rows of a block after the final norm.

    taps (b, P, features * H) of the tokens before the anchor, block_ids (b, B): anchor then mask tokens ->
    (b, B, H).
    """
    eps, theta = config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    dflash = config.get("dflash_config", {})
    taps_count, group_size = dflash.get("conv_kernel_size"), dflash.get("conv_group_size")
    batch, length, _ = taps.shape
    rows = block_ids.shape[1]
    context_positions = torch.arange(length).expand(batch, -1)
    block_positions = length + torch.arange(rows).expand(batch, -1)
    feature = _norm(taps @ weights["fc.weight"].T, weights["hidden_norm.weight"], eps)

    def conv(x: Tensor, source: Tensor, side: int, name: str) -> Tensor:
        """Convolve x with the kernel that source, the sublayer's input, asks for; nothing without a kernel."""
        if f"{name}.base_kernel" not in weights:
            return x
        flat = source @ weights[f"{name}.kernel_projection.weight"].T
        kernels = flat.reshape(batch, rows, 2, taps_count, config["hidden_size"] // group_size)
        return _conv(x, weights[f"{name}.base_kernel"][side], kernels[:, :, side], group_size)

    def keys_values(x: Tensor, name: str, positions: Tensor) -> tuple[Tensor, Tensor]:
        key = (x @ weights[f"{name}.k_proj.weight"].T).unflatten(-1, (kv_heads, dim))
        value = (x @ weights[f"{name}.v_proj.weight"].T).unflatten(-1, (kv_heads, dim))
        return _rope(_norm(key, weights[f"{name}.k_norm.weight"], eps), positions, theta), value

    residual = embedding[block_ids]
    for index in range(config["num_hidden_layers"]):
        layer = f"layers.{index}"
        attention = f"{layer}.self_attn"
        source = _norm(residual, weights[f"{layer}.input_layernorm.weight"], eps)
        hidden = conv(source, source, 0, f"{layer}.attention_conv")
        query = (hidden @ weights[f"{attention}.q_proj.weight"].T).unflatten(-1, (heads, dim))
        query = _rope(_norm(query, weights[f"{attention}.q_norm.weight"], eps), block_positions, theta)
        context_key, context_value = keys_values(feature, attention, context_positions)
        block_key, block_value = keys_values(hidden, attention, block_positions)
        key, value = torch.cat((context_key, block_key), 1), torch.cat((context_value, block_value), 1)
        out = torch.zeros(batch, rows, heads, dim)
        for head in range(heads):
            shared = head // (heads // kv_heads)
            scores = torch.einsum("bqd,bkd->bqk", query[:, :, head], key[:, :, shared]) * dim**-0.5
            out[:, :, head] = scores.softmax(dim=-1) @ value[:, :, shared]  # no mask: all rows see all
        mixed = out.flatten(2) @ weights[f"{attention}.o_proj.weight"].T
        residual = residual + conv(mixed, source, 1, f"{layer}.attention_conv")

        source = _norm(residual, weights[f"{layer}.post_attention_layernorm.weight"], eps)
        hidden = conv(source, source, 0, f"{layer}.mlp_conv")
        gate = hidden @ weights[f"{layer}.mlp.gate_proj.weight"].T
        up = hidden @ weights[f"{layer}.mlp.up_proj.weight"].T
        hidden = (gate * torch.sigmoid(gate) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T
        residual = residual + conv(hidden, source, 1, f"{layer}.mlp_conv")
    return _norm(residual, weights["norm.weight"], eps)


def build_lattice(
    config: dict[str, Any], weights: Weights, head: Tensor, hidden: Tensor, anchor_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """Candidates (b, D, K) and scores (b, D, K, K) from the drafted rows hidden (b, D, H); head (V, H) is the
    target's."""
    top_k = config["dflash_config"]["selector_top_k"]
    unary, candidates = (hidden @ head.T).topk(top_k, dim=-1)
    gate = hidden @ weights["candidate_selector.hidden_projection.weight"].T
    predecessor_table = weights["candidate_selector.predecessor_codebook"]
    successor_table = weights["candidate_selector.successor_codebook"]
    batch, depth, _ = candidates.shape
    scores = torch.empty(batch, depth, top_k, top_k)
    for b in range(batch):
        for d in range(depth):
            for p in range(top_k):
                before = anchor_ids[b] if d == 0 else candidates[b, d - 1, p]
                left = predecessor_table[before] * gate[b, d]
                scores[b, d, p] = unary[b, d] + successor_table[candidates[b, d]] @ left
    return candidates, scores


def greedy_path(candidates: Tensor, scores: Tensor) -> Tensor:
    """The chain (b, D) that takes the best successor of the token before it, from the anchor on."""
    batch, depth, _ = candidates.shape
    path = torch.empty(batch, depth, dtype=torch.int64)
    for b in range(batch):
        at = 0
        for d in range(depth):
            at = int(scores[b, d, at].argmax())
            path[b, d] = candidates[b, d, at]
    return path
