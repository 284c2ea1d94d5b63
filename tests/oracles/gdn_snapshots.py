"""Gated DeltaNet on a tree the way that keeps a snapshot for every row: its state and its convolution window.

An oracle beside :mod:`specpilot_kernels.gdn_rows.reference`, written from the recurrence alone: a row starts from the
snapshot its parent left. Which snapshot it takes can be set, so that the faults of such code can be made: a row that
goes on from its sibling's state, or convolves over its sibling's inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot_kernels.gdn_rows import GdnMemory, GdnWeights

__all__ = ["run_by_snapshots"]


def run_by_snapshots(
    projected: Tensor,
    memory: GdnMemory,
    layer: int,
    weights: GdnWeights,
    parents: Sequence[int],
    *,
    state_from: Sequence[int] | None = None,
    window_from: Sequence[int] | None = None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Outputs (N, H d_v), and after every row its state (G, d_k, R d_v) and window (conv size - 1, C); all float64.

    ``state_from`` and ``window_from`` say whose snapshot a row starts from, -1 the committed one; the parent's if left
    out.
    """
    shape = weights.shape
    rows, taps = projected.double(), weights.taps.double()
    channels, heads = shape.num_channels, shape.num_heads
    split = (channels, heads * shape.value_dim, heads, heads)
    states = [torch.from_numpy(memory.recurrent[layer]).double()]
    windows = [torch.from_numpy(memory.window[layer]).double()]
    outs = []
    for row, (mixed, z, b, a) in enumerate(zip(*rows.split(split, 1), strict=True)):
        state = states[1 + (state_from or parents)[row]].clone()
        inputs = torch.cat((windows[1 + (window_from or parents)[row]], mixed[None]))
        x = (inputs * taps).sum(0)
        x = x / (1 + torch.exp(-x))
        out = torch.empty(heads, shape.value_dim, dtype=torch.float64)
        for head in range(heads):
            group, r = divmod(head, shape.per_group)
            at = 2 * group * shape.key_dim
            q, k = x[at : at + 2 * shape.key_dim].split(shape.key_dim)
            q, k = (part / torch.sqrt(part @ part + weights.unit_eps) for part in (q, k))
            at = 2 * shape.num_groups * shape.key_dim + head * shape.value_dim
            v = x[at : at + shape.value_dim]
            rate, dt_bias = weights.rate[head].double(), weights.dt_bias[head].double()
            decay = torch.exp(rate * torch.log1p(torch.exp(a[head] + dt_bias)))
            h = state[group, :, r * shape.value_dim : (r + 1) * shape.value_dim]
            h *= decay
            h += torch.outer(k, torch.sigmoid(b[head]) * (v - k @ h))
            read = q @ h / shape.key_dim**0.5
            out[head] = read / torch.sqrt(read.square().mean() + weights.norm_eps)
        gate = z.view(heads, -1)
        outs.append((out * weights.norm_weight.double() * gate * torch.sigmoid(gate)).flatten())
        states.append(state)
        windows.append(inputs[1:])
    return torch.stack(outs), states[1:], windows[1:]
