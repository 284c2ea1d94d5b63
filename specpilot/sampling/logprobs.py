"""The model's own view of its rows: most likely tokens and log-probabilities, before any sampling option."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot.engines.base import TokenLogprob
from specpilot_kernels.draft_candidates import top_candidates

__all__ = ["argmax_ids", "token_logprobs"]


def argmax_ids(logits: Tensor) -> list[int]:
    """Most likely token of each row, the lowest id on a tie. logits (R, V) float32, CPU."""
    # NumPy promises the first maximum; torch.argmax leaves ties open.
    return [int(index) for index in logits.numpy().argmax(-1)]


def token_logprobs(logits: Tensor, token_ids: Sequence[int], num_top: int) -> tuple[TokenLogprob, ...]:
    """Log-probability of ``token_ids[i]`` under row i of raw ``logits`` (R, V) float32, with the ``num_top`` best.

    Rows behind the last token are not looked at; equal alternatives stand in the order of their ids.
    """
    rows = logits[: len(token_ids)]
    # Raw logits are ordered, not log-probabilities: rounding could make two of those equal.
    columns = torch.tensor(list(token_ids))[:, None]
    if num_top:
        _, ids = top_candidates(rows.numpy(), min(num_top, rows.shape[-1]))
        columns = torch.cat((columns, torch.from_numpy(ids)), dim=-1)
    values = torch.log_softmax(rows.double(), dim=-1).gather(-1, columns).tolist()
    return tuple(
        TokenLogprob(token_id, row[0], tuple(zip(ranked, row[1:], strict=True)))
        for (token_id, *ranked), row in zip(columns.tolist(), values, strict=True)
    )
