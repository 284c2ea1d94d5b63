"""The operation in plain torch, row by row: what the kernel is compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["gdn_replay_reference", "gdn_rows_reference"]


def gdn_rows_reference(
    projected: Tensor,
    window: Tensor,
    state: Tensor,
    taps: Tensor,
    rate: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    *,
    num_groups: int,
    unit_eps: float,
    norm_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`specpilot_kernels.gdn_rows.gdn_rows`; any float dtype. Returns (out, keys, values, decay)."""
    num_rows, channels = projected.shape[0], taps.shape[1]
    num_heads = rate.shape[0]
    value_dim = norm_weight.shape[0]
    key_dim = state.shape[1]
    mixed, z, b, a = projected.split((channels, num_heads * value_dim, num_heads, num_heads), 1)
    inputs = torch.cat((window, mixed))
    state = state.clone()
    outs, keys, written, decays = [], [], [], []
    for t in range(num_rows):
        activated = F.silu((inputs[t : t + taps.shape[0]] * taps).sum(0))
        pairs = activated[: 2 * num_groups * key_dim].view(num_groups, 2, key_dim)
        pairs = pairs / (pairs.square().sum(-1, keepdim=True) + unit_eps).sqrt()
        query, key = pairs[:, 0] * key_dim**-0.5, pairs[:, 1]
        value = activated[2 * num_groups * key_dim :].view(num_groups, -1)
        factor = (rate * F.softplus(a[t] + dt_bias)).exp().view(num_groups, -1)
        beta = torch.sigmoid(b[t]).view(num_groups, -1)
        wide_factor, wide_beta = (x.repeat_interleave(value_dim, 1) for x in (factor, beta))
        state *= wide_factor[:, None]
        w = (value - torch.einsum("gk,gkv->gv", key, state)) * wide_beta
        state += key[..., None] * w[:, None]
        read = torch.einsum("gk,gkv->gv", query, state).view(num_heads, value_dim)
        normed = read / (read.square().mean(-1, keepdim=True) + norm_eps).sqrt() * norm_weight
        outs.append(normed.flatten() * F.silu(z[t]))
        keys.append(key)
        written.append(w)
        decays.append(factor)
    return torch.stack(outs), torch.stack(keys, 1), torch.stack(written, 1), torch.stack(decays, 1)


def gdn_replay_reference(state: Tensor, keys: Tensor, values: Tensor, decay: Tensor, num_rows: int) -> Tensor:
    """State (N, d_k, R * d_v) after the first ``num_rows`` of the rows that wrote ``values``."""
    state = state.clone()
    for t in range(num_rows):
        state *= decay[:, t].repeat_interleave(state.shape[2] // decay.shape[2], 1)[:, None]
        state += keys[:, t, :, None] * values[:, t, None, :]
    return state
