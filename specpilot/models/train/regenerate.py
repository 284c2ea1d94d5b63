"""Answers of the trained target to the corpus's prompts: the text its drafters learn from.

All sequences of a batch start at position 0 and take one token a step: a row still inside its prompt is fed the prompt,
any other row its own last token. No padding, no prefill, and the recurrent form is used as in serving.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.models.train.target import GatedAttention, GatedDeltaNet, TrainTarget, rope_tables, rotate

__all__ = ["regenerate"]


class _Caches:
    def __init__(self, model: TrainTarget, rows: int, length: int, device: torch.device) -> None:
        config = model.config
        self.recurrent: dict[int, Tensor] = {}
        self.window: dict[int, Tensor] = {}
        self.kv: dict[int, Tensor] = {}
        conv = (
            2 * config.gdn_num_key_heads * config.gdn_key_dim
            + config.gdn_num_value_heads * config.gdn_value_dim
        )
        for index, kind in enumerate(config.layer_types):
            if kind == "full_attention":
                shape = (2, rows, config.num_kv_heads, length, config.head_dim)
                self.kv[index] = torch.zeros(shape, device=device, dtype=torch.bfloat16)
            else:
                state = (rows, config.gdn_num_value_heads, config.gdn_key_dim, config.gdn_value_dim)
                self.recurrent[index] = torch.zeros(state, device=device)
                self.window[index] = torch.zeros(rows, config.gdn_conv_size, conv, device=device)


def _attention_step(
    layer: GatedAttention, x: Tensor, kv: Tensor, place: int, cos: Tensor, sin: Tensor
) -> Tensor:
    rows = x.shape[0]
    query, gate = layer.q_proj(x).view(rows, layer.num_heads, 2 * layer.head_dim).chunk(2, dim=-1)
    key = layer.k_norm(layer.k_proj(x).view(rows, layer.num_kv_heads, layer.head_dim))
    kv[0, :, :, place] = rotate(key, cos, sin)
    kv[1, :, :, place] = layer.v_proj(x).view(rows, layer.num_kv_heads, layer.head_dim)
    query = rotate(layer.q_norm(query), cos, sin)
    # Queries of one key head are rows of one small product, so keys and values are read once.
    query = query.to(kv.dtype).view(rows, layer.num_kv_heads, -1, layer.head_dim)
    out = F.scaled_dot_product_attention(query, kv[0, :, :, : place + 1], kv[1, :, :, : place + 1])
    out = out.to(gate.dtype).reshape(rows, layer.num_heads, -1) * gate.sigmoid()
    mixed: Tensor = layer.o_proj(out.flatten(1))
    return mixed


def _delta_step(layer: GatedDeltaNet, x: Tensor, state: Tensor, window: Tensor) -> Tensor:
    config, rows = layer.config, x.shape[0]
    window[:, :-1] = window[:, 1:].clone()
    window[:, -1] = layer.in_proj_qkv(x)
    mixed = F.silu((window * layer.conv1d.weight[:, 0].T).sum(1))
    query, key, value = mixed.split(layer.splits, dim=-1)
    repeat = config.gdn_num_value_heads // config.gdn_num_key_heads
    query, key = (t.view(rows, -1, config.gdn_key_dim).repeat_interleave(repeat, 1) for t in (query, key))
    query = query * torch.rsqrt(query.square().sum(-1, keepdim=True) + 1e-6) * config.gdn_key_dim**-0.5
    key = key * torch.rsqrt(key.square().sum(-1, keepdim=True) + 1e-6)
    value = value.view(rows, -1, config.gdn_value_dim)
    decay = (-layer.A_log.exp() * F.softplus(layer.in_proj_a(x).float() + layer.dt_bias)).exp()
    write = layer.in_proj_b(x).float().sigmoid()
    # Products of one row with each sequence's state are bound by reading the state, and batched GEMM kernels are an
    # order slower at it than these broadcasts (measured on an H200).
    state.mul_(decay[..., None, None])
    delta = write[..., None] * (value - (state * key[..., None]).sum(-2))
    state.addcmul_(key[..., None], delta[..., None, :])
    out = (state * query[..., None]).sum(-2)
    gate = F.silu(layer.in_proj_z(x).float()).view(rows, -1, config.gdn_value_dim)
    mixed = layer.norm(out) * gate
    result: Tensor = layer.out_proj(mixed.flatten(1))
    return result


@torch.no_grad()
def regenerate(
    model: TrainTarget,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    end_id: int,
    temperature: Tensor,
    generator: torch.Generator,
) -> list[list[int]]:
    """Continue every prompt until ``end_id`` or ``max_new_tokens``; returns prompt + answer (end included).

    temperature (rows,) float32: 0 is greedy for that row.
    """
    device = temperature.device
    rows, longest = len(prompts), max(map(len, prompts))
    length = longest + max_new_tokens
    given = torch.full((rows, length), -1, device=device)
    for row, prompt in enumerate(prompts):
        given[row, : len(prompt)] = torch.tensor(prompt)
    sizes = torch.tensor([len(prompt) for prompt in prompts], device=device)
    caches = _Caches(model, rows, length, device)
    cos, sin = rope_tables(length, model.config.rotary_dim, model.config.rope_theta, device)
    done = torch.zeros(rows, dtype=torch.bool, device=device)
    for place in range(length - 1):
        x = F.embedding(given[:, place].clamp_min(0), model.model.embed_tokens.weight)
        for index, layer in enumerate(model.model.layers):
            normed = layer.input_layernorm(x)
            if index in caches.kv:
                x = x + _attention_step(
                    layer.self_attn, normed, caches.kv[index], place, cos[place], sin[place]
                )
            else:
                x = x + _delta_step(layer.linear_attn, normed, caches.recurrent[index], caches.window[index])
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = model.logits(model.model.norm(x)).float()
        noise = -torch.log(
            -torch.log(torch.rand(logits.shape, generator=generator, device=device).clamp_(1e-20, 1 - 1e-7))
        )
        # Gumbel maximum; temperature 0 leaves the argmax.
        choice = (logits + temperature[:, None] * noise).argmax(-1)
        done |= (given[:, place] == end_id) & (place >= sizes)
        done |= place + 1 >= sizes + max_new_tokens
        free = (given[:, place + 1] < 0) & ~done
        given[:, place + 1] = torch.where(free, choice, given[:, place + 1])
        if place % 32 == 0 and place > longest and bool(done.all()):
            break
    return [[token for token in row if token >= 0] for row in given.tolist()]
