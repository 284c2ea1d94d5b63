"""The operation in plain torch, row by row: what the kernel is compared with.

All functions take any float dtype. ``projected`` and the weights are those of
:func:`specpilot_kernels.gdn_rows.gdn_rows`; ``window`` is (conv size - 1, C), ``state`` (G, d_k, R d_v).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "gdn_replay_reference",
    "gdn_rows_reference",
    "gdn_tree_reference",
    "gdn_wy_reference",
]


class _Brought(NamedTuple):
    """What a row brings: query, key (G, d_k); value (G, R d_v); log decay, beta (G, R)."""

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    beta: Tensor


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
    """Rows of a chain. Returns (out, keys, values, decay)."""
    num_heads, value_dim, key_dim = rate.shape[0], norm_weight.shape[0], state.shape[1]
    inputs = torch.cat((window, projected[:, : taps.shape[1]]))
    state = state.clone()
    outs, keys, written, decays = [], [], [], []
    for t, row in enumerate(projected):
        conv_input = inputs[t : t + taps.shape[0]]
        brought = _bring(row, conv_input, taps, rate, dt_bias, num_groups, key_dim, unit_eps)
        factor = brought.log_decay.exp()
        state *= factor.repeat_interleave(value_dim, 1)[:, None]
        unknown = brought.value - torch.einsum("gk,gkv->gv", brought.key, state)
        w = unknown * brought.beta.repeat_interleave(value_dim, 1)
        state += brought.key[..., None] * w[:, None]
        read = torch.einsum("gk,gkv->gv", brought.query, state).view(num_heads, value_dim)
        outs.append(_norm_and_gate(read, row, taps.shape[1], norm_weight, norm_eps))
        keys.append(brought.key)
        written.append(w)
        decays.append(factor)
    return torch.stack(outs), torch.stack(keys, 1), torch.stack(written, 1), torch.stack(decays, 1)


def gdn_tree_reference(
    projected: Tensor,
    window: Tensor,
    state: Tensor,
    taps: Tensor,
    rate: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    parents: Sequence[int],
    *,
    num_groups: int,
    unit_eps: float,
    norm_eps: float,
) -> Tensor:
    """Rows of a tree: of each, the last row of its root path run as a chain."""
    outs = []
    for path in _paths(parents):
        out, *_ = gdn_rows_reference(
            projected[path],
            window,
            state,
            taps,
            rate,
            dt_bias,
            norm_weight,
            num_groups=num_groups,
            unit_eps=unit_eps,
            norm_eps=norm_eps,
        )
        outs.append(out[-1])
    return torch.stack(outs)


def gdn_wy_reference(
    projected: Tensor,
    window: Tensor,
    state: Tensor,
    taps: Tensor,
    rate: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    parents: Sequence[int],
    *,
    num_groups: int,
    unit_eps: float,
    norm_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of a tree at once, by one triangular solve a head. Returns (out, keys, values, decay).

    See :mod:`specpilot_kernels.gdn_rows.cpu_wy`. Masks are put on exponents, not on what they give.
    """
    num_rows, num_heads, value_dim, key_dim = (
        len(projected),
        rate.shape[0],
        norm_weight.shape[0],
        state.shape[1],
    )
    is_seen = torch.zeros(num_rows, num_rows, dtype=torch.bool)
    rows = []
    for row, path in enumerate(_paths(parents)):
        is_seen[row, path] = True
        inputs = torch.cat((window, projected[path, : taps.shape[1]]))[-taps.shape[0] :]
        rows.append(_bring(projected[row], inputs, taps, rate, dt_bias, num_groups, key_dim, unit_eps))
    queries, keys, values, log_decay, beta = (torch.stack(part, 1) for part in zip(*rows, strict=True))
    reads, written = [], []
    for head in range(num_heads):
        group, r = divmod(head, num_heads // num_groups)
        columns = slice(r * value_dim, (r + 1) * value_dim)
        q, k, v, h = queries[group], keys[group], values[group, :, columns], state[group, :, columns]
        g, strength = log_decay[group, :, r], beta[group, :, r, None]
        sums = is_seen.to(g.dtype) @ g
        decay = torch.where(is_seen, sums[:, None] - sums, -torch.inf).exp()
        system = torch.eye(num_rows, dtype=g.dtype) + (strength * decay * (k @ k.T)).tril(-1)
        right = strength * (v - sums.exp()[:, None] * (k @ h))
        w = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        reads.append(sums.exp()[:, None] * (q @ h) + (decay * (q @ k.T)) @ w)
        written.append(w)
    outs = [
        _norm_and_gate(read, row, taps.shape[1], norm_weight, norm_eps)
        for read, row in zip(torch.stack(reads, 1), projected, strict=True)
    ]
    wide = torch.stack(written, 1).view(num_rows, num_groups, -1).transpose(0, 1)
    return torch.stack(outs), keys, wide, log_decay.exp()


def gdn_replay_reference(state: Tensor, keys: Tensor, values: Tensor, decay: Tensor, num_rows: int) -> Tensor:
    """State (N, d_k, R * d_v) after the first ``num_rows`` of the rows that wrote ``values``."""
    state = state.clone()
    for t in range(num_rows):
        state *= decay[:, t].repeat_interleave(state.shape[2] // decay.shape[2], 1)[:, None]
        state += keys[:, t, :, None] * values[:, t, None, :]
    return state


def _bring(
    row: Tensor,
    inputs: Tensor,
    taps: Tensor,
    rate: Tensor,
    dt_bias: Tensor,
    num_groups: int,
    key_dim: int,
    unit_eps: float,
) -> _Brought:
    """``inputs``, (conv size, C), end with the row's own."""
    num_heads = rate.shape[0]
    b, a = row[-2 * num_heads :].split(num_heads)
    activated = F.silu((inputs * taps).sum(0))
    pairs = activated[: 2 * num_groups * key_dim].view(num_groups, 2, key_dim)
    pairs = pairs / (pairs.square().sum(-1, keepdim=True) + unit_eps).sqrt()
    return _Brought(
        pairs[:, 0] * key_dim**-0.5,
        pairs[:, 1],
        activated[2 * num_groups * key_dim :].view(num_groups, -1),
        (rate * F.softplus(a + dt_bias)).view(num_groups, -1),
        torch.sigmoid(b).view(num_groups, -1),
    )


def _norm_and_gate(
    read: Tensor, row: Tensor, num_channels: int, norm_weight: Tensor, norm_eps: float
) -> Tensor:
    """``read`` (H, d_v) -> (H d_v,)."""
    normed = read / (read.square().mean(-1, keepdim=True) + norm_eps).sqrt() * norm_weight
    return normed.flatten() * F.silu(row[num_channels : num_channels + read.numel()])


def _paths(parents: Sequence[int]) -> list[list[int]]:
    """For every row, the rows from the root to it."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), row])
    return paths
