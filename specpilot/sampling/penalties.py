"""Repetition, frequency and presence penalties over what a request has seen and said."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot.engines.base import SamplingParams

__all__ = ["TokenHistory"]


class TokenHistory:
    """Which tokens the prompt holds and how often the answer holds each; grows with ``add``.

    The penalties have the meaning they have in vLLM: the repetition penalty looks at prompt and answer, the other two
    at the answer alone.
    """

    def __init__(self, prompt_ids: Sequence[int], vocab_size: int) -> None:
        self._is_in_prompt = torch.zeros(vocab_size, dtype=torch.bool)
        self._is_in_prompt[torch.tensor(list(prompt_ids), dtype=torch.int64)] = True
        self._answer_counts = torch.zeros(vocab_size)

    def add(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            self._answer_counts[token_id] += 1

    def penalise(self, logits: Tensor, path: Sequence[int], params: SamplingParams) -> Tensor:
        """Penalised copy of ``logits`` (R, V); row i counts ``path[:i]`` as said. The history is not changed."""
        counts = self._answer_counts.to(logits.dtype).expand(logits.shape).clone()
        for index, token_id in enumerate(path[: len(logits) - 1]):
            counts[index + 1 :, token_id] += 1
        if params.repetition_penalty != 1.0:
            factor = params.repetition_penalty
            weakened = torch.where(logits > 0, logits / factor, logits * factor)
            logits = torch.where(self._is_in_prompt | (counts > 0), weakened, logits)
        return (
            logits
            - params.frequency_penalty * counts
            - params.presence_penalty * (counts > 0).to(logits.dtype)
        )
