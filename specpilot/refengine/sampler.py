"""From logits to tokens: greedy choice, temperature and nucleus, log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot.engines.base import SamplingParams, TokenLogprob

__all__ = ["argmax_ids", "probabilities", "sample", "token_logprobs"]


def argmax_ids(logits: Tensor) -> list[int]:
    """Most likely token of each row, the lowest id on a tie. logits (R, V) float32, CPU."""
    # NumPy promises the first maximum; torch.argmax leaves ties open.
    return [int(index) for index in logits.numpy().argmax(-1)]


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """The distribution a sampled token is drawn from, (R, V) float32: temperature first, then the nucleus.

    The nucleus is the shortest list of tokens, most likely first and lower id first among equals, whose mass reaches
    ``top_p``; the rest is zero and the list is renormalised.
    """
    probs = torch.softmax(logits.double() / params.temperature, dim=-1)
    if params.top_p < 1.0:
        ordered, index = torch.sort(probs, dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= params.top_p, 0.0)
        probs = torch.zeros_like(probs).scatter(-1, index, ordered)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs.float()


def sample(probs: Tensor, generator: torch.Generator) -> int:
    """Draw one token id from a row of probabilities (V,)."""
    return int(torch.multinomial(probs, 1, generator=generator))


def token_logprobs(logits: Tensor, token_ids: list[int], top: int) -> tuple[TokenLogprob, ...]:
    """Log-probabilities of ``token_ids[i]`` under row i of ``logits`` (R, V), before temperature and nucleus."""
    logprobs = torch.log_softmax(logits[: len(token_ids)].double(), dim=-1)
    chosen = logprobs.gather(-1, torch.tensor(token_ids)[:, None])[:, 0].tolist()
    best: list[tuple[tuple[int, float], ...]] = [() for _ in token_ids]
    if top:
        ordered, index = torch.sort(logprobs, dim=-1, descending=True, stable=True)
        best = [
            tuple(zip(ids, values, strict=True))
            for ids, values in zip(index[:, :top].tolist(), ordered[:, :top].tolist(), strict=True)
        ]
    return tuple(TokenLogprob(*parts) for parts in zip(token_ids, chosen, best, strict=True))
