"""Oracle: an EAGLE-3 chain in float64 with plain loops, from the paper (https://arxiv.org/abs/2503.01840) and the
description in srt/models/llama_eagle3.py of SGLang 0.5.20; nothing is cached, packed or reordered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean() + eps).sqrt() * weight


def _turn(head: Tensor, position: int, theta: float) -> Tensor:
    half = head.shape[0] // 2
    out = torch.empty_like(head)
    for pair in range(half):
        angle = position * theta ** (-pair / half)
        a, b = head[pair], head[pair + half]
        out[pair] = a * math.cos(angle) - b * math.sin(angle)
        out[pair + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def draft_chain(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    table: Tensor,
    ids: Sequence[int],
    taps: Tensor,
    depth: int,
    forced: Sequence[int] | None = None,
) -> tuple[list[int], Tensor]:
    """Chain of ``depth`` tokens after the anchor, and the logits (depth, V) each was chosen from.

    ``ids`` are the committed tokens and the anchor, ``taps`` (len(ids) - 1, n * H) those of the committed ones. Tokens
    are the greedy ones, or ``forced``.
    """
    weights = {name: tensor.detach().double() for name, tensor in tensors.items()}
    table, taps = table.double(), taps.double()
    dim, eps, theta = config["head_dim"], config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]
    groups = config["num_attention_heads"] // config["num_key_value_heads"]

    def heads(name: str, x: Tensor, position: int | None) -> list[Tensor]:
        parts = (weights[f"midlayer.self_attn.{name}_proj.weight"] @ x).split(dim)
        return [part if position is None else _turn(part, position, theta) for part in parts]

    keys: list[list[Tensor]] = []
    values: list[list[Tensor]] = []
    chain: list[int] = []
    logits = []
    tokens = list(ids)
    hidden = torch.empty(0)
    num_committed = taps.shape[0]
    for pair in range(num_committed + depth - 1):
        if pair < num_committed:  # later rows go on with their own hidden state
            hidden = weights["fc.weight"] @ taps[pair]
        embedded = _norm(table[tokens[pair + 1]], weights["midlayer.input_layernorm.weight"], eps)
        x = torch.cat((embedded, _norm(hidden, weights["midlayer.hidden_norm.weight"], eps)))
        keys.append(heads("k", x, pair))
        values.append(heads("v", x, None))
        if pair < num_committed - 1:
            continue
        mixed = []
        for index, query in enumerate(heads("q", x, pair)):
            scores = torch.stack([query @ key[index // groups] for key in keys]) / dim**0.5
            mixed.append(scores.softmax(0) @ torch.stack([value[index // groups] for value in values]))
        hidden = hidden + weights["midlayer.self_attn.o_proj.weight"] @ torch.cat(mixed)
        h = _norm(hidden, weights["midlayer.post_attention_layernorm.weight"], eps)
        gate, up = (weights[f"midlayer.mlp.{name}_proj.weight"] @ h for name in ("gate", "up"))
        hidden = hidden + weights["midlayer.mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)
        logits.append(table @ _norm(hidden, weights["norm.weight"], eps))
        chain.append(int(logits[-1].argmax()) if forced is None else forced[len(chain)])
        tokens.append(chain[-1])
    return chain, torch.stack(logits)
