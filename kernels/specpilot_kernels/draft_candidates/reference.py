"""What :mod:`specpilot_kernels.draft_candidates` computes, slow and obvious."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["greedy_chain_reference", "pair_scores_reference", "top_candidates_reference"]


def top_candidates_reference(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """By a stable sort of each row."""
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    return values[:, :k], ids[:, :k]


def pair_scores_reference(
    left: Tensor, logits: Tensor, ids: Tensor, anchor_id: int, predecessors: Tensor, successors: Tensor
) -> Tensor:
    """Pair by pair, in the dtype of the tables."""
    depth, width = ids.shape
    out = torch.empty(depth, width, width, dtype=left.dtype)
    for t in range(depth):
        for p in range(width):
            before = int(ids[t - 1, p]) if t else anchor_id
            for c in range(width):
                pair = predecessors[before] * left[t] * successors[ids[t, c]]
                out[t, p, c] = logits[t, c] + pair.sum()
    return out


def greedy_chain_reference(ids: Tensor, edges: Tensor) -> Tensor:
    """Depth by depth, all candidates of the best score, the lowest token among them."""
    chain: list[int] = []
    row = 0
    for t in range(ids.shape[0]):
        scores = edges[t, row]
        if scores.max() == -torch.inf:
            return torch.tensor(chain + [-1] * (ids.shape[0] - t))
        tied = [c for c in range(ids.shape[1]) if scores[c] == scores.max()]
        row = min(tied, key=lambda c: int(ids[t, c]))
        chain.append(int(ids[t, row]))
    return torch.tensor(chain)
