"""The law a sampled token is drawn from: temperature, then top-k, top-p and min-p, in this order."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot.engines.base import SamplingParams

__all__ = ["probabilities"]


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """Law of a sampled token for each row of processed logits (R, V), float64 (R, V).

    Tokens are ranked most likely first, lower id first among equals. Top-k keeps the first k; top-p the shortest
    beginning whose mass, of what top-k left, reaches ``top_p``; min-p drops what is less likely than ``min_p`` times
    the first. The rest is zero, what is kept is renormalised. Transformers has the same order.
    """
    probs = torch.softmax(logits.double() / params.temperature, dim=-1)
    if params.top_p < 1.0 or 0 < params.top_k < probs.shape[-1]:
        ranked, index = torch.sort(probs, dim=-1, descending=True, stable=True)
        if params.top_k:
            ranked[:, params.top_k :] = 0.0
        if params.top_p < 1.0:
            ranked = ranked / ranked.sum(-1, keepdim=True)
            before = ranked.cumsum(-1) - ranked
            ranked = ranked.masked_fill(before >= params.top_p, 0.0)
        probs = torch.zeros_like(probs).scatter(-1, index, ranked)
    if params.min_p > 0.0:
        probs = probs.masked_fill(probs < params.min_p * probs.amax(-1, keepdim=True), 0.0)
    return probs / probs.sum(-1, keepdim=True)
