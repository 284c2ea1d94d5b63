"""What :func:`specpilot_kernels.chain_attention.chain_attention` computes, slow and obvious."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["chain_attention_reference"]


def chain_attention_reference(
    projected: Tensor,
    keys: Tensor,
    values: Tensor,
    position: int,
    scales: Tensor,
    rotation: Tensor,
    eps: float | None,
    num_heads: int,
    is_block: bool = False,
    window: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Row by row and head by head, any float dtype. Returns (out, keys, values), the last two new."""
    num_kv_heads, _, dim = keys.shape
    keys, values = keys.clone(), values.clone()
    widths = [num * dim for num in (num_heads, num_kv_heads, num_kv_heads, num_heads)]
    is_gated = projected.shape[1] == sum(widths)
    out = torch.empty(projected.shape[0], num_heads * dim, dtype=projected.dtype)
    queries = []
    for m, row in enumerate(projected):
        at = position + m
        query, key, value = (part.view(-1, dim) for part in row[: sum(widths[:3])].split(widths[:3]))
        normed = torch.cat((query, key))
        if eps is not None:
            normed = normed / (normed.square().mean(-1, keepdim=True) + eps).sqrt()
        normed = normed * scales
        pairs = normed[:, : 2 * rotation.shape[1]].view(len(normed), -1, 2)
        (a, b), (cos, sin) = pairs.clone().unbind(-1), rotation[at].unbind(-1)
        pairs[..., 0], pairs[..., 1] = a * cos - b * sin, a * sin + b * cos
        keys[:, at], values[:, at] = normed[num_heads:], value
        queries.append(normed[:num_heads])
    for m, row in enumerate(projected):
        first = 0 if window is None else max(0, position + m + 1 - window)
        end = position + (projected.shape[0] if is_block else m + 1)
        for head in range(num_heads):
            group, channels = head * num_kv_heads // num_heads, slice(head * dim, (head + 1) * dim)
            weights = torch.softmax(keys[group, first:end] @ queries[m][head], 0)
            out[m, channels] = weights @ values[group, first:end]
            if is_gated:
                out[m, channels] *= torch.sigmoid(row[sum(widths[:3]) :][channels])
    return out, keys, values
