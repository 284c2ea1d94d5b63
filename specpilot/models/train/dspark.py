"""Trainable form of the DSpark drafter: many anchors of a sequence at once.

A block of gamma rows, the anchor's and gamma - 1 mask rows; row i proposes the token after position i, so the anchor's
own row drafts too. The target's head on the hidden rows gives base logits, and a Markov head adds a bias over the whole
vocabulary that depends on the token before: ``l_i(y) = U_i(y) + <W1[x_(i-1)], W2[y]>``. A confidence head reads the
hidden row and ``W1[x_(i-1)]`` and says how likely the target accepts the row's token.
Definition: https://arxiv.org/abs/2607.05147; names and layouts are those SGLang 0.5.20 loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specpilot.models.train.block_drafter import BlockDrafter, BlockShape, DraftLayer
from specpilot.models.train.drafter import DraftBatch

__all__ = ["ConfidenceHead", "DSparkShape", "MarkovHead", "TrainDSpark"]


@dataclass(frozen=True)
class DSparkShape(BlockShape):
    """Dimensions of a drafter; ``config_dict`` is its config.json. ``block_size`` is gamma, the tokens drafted."""

    block_size: int = 7
    markov_rank: int = 64

    def config_dict(self) -> dict[str, Any]:
        return {
            "architectures": ["Qwen3DSparkModel"],
            **super().config_dict(),
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": self.target_layer_ids,
            "markov_rank": self.markov_rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
        }


class MarkovHead(nn.Module):
    """Low-rank bias on the logits of a token that depends on the token before it."""

    def __init__(self, shape: DSparkShape) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(shape.vocab_size, shape.markov_rank)
        self.markov_w2 = nn.Linear(shape.markov_rank, shape.vocab_size, bias=False)

    def forward(self, predecessor: Tensor) -> Tensor:
        """Token ids (...) -> bias (..., V)."""
        bias: Tensor = self.markov_w2(self.markov_w1(predecessor))
        return bias


class ConfidenceHead(nn.Module):
    """Logit of the probability that the target accepts a row's token."""

    def __init__(self, shape: DSparkShape) -> None:
        super().__init__()
        self.proj = nn.Linear(shape.hidden_size + shape.markov_rank, 1)

    def forward(self, hidden: Tensor, predecessor_rows: Tensor) -> Tensor:
        """hidden (..., H), rows of W1 (..., r) -> (...)."""
        logit: Tensor = self.proj(torch.cat((hidden, predecessor_rows), dim=-1))[..., 0]
        return logit


class TrainDSpark(BlockDrafter[DSparkShape]):
    def __init__(self, shape: DSparkShape) -> None:
        super().__init__(shape, [DraftLayer(shape) for _ in range(shape.num_layers)])
        self.markov_head = MarkovHead(shape)
        self.confidence_head = ConfidenceHead(shape)

    @property
    def num_drafts(self) -> int:
        return self.shape.block_size

    def initialise(self, seed: int) -> None:
        """The Markov head starts as a no-op (W2 zero), the confidence at one half."""
        generator = self.initialise_backbone(seed)
        table = self.markov_head.markov_w1.weight
        table.data.copy_(torch.randn(table.shape, generator=generator) * 0.02)
        self.markov_head.markov_w2.weight.data.zero_()
        self.confidence_head.proj.weight.data.zero_()
        self.confidence_head.proj.bias.data.zero_()

    def forward(self, ids: Tensor, taps: Tensor, anchors: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden rows (S, A, D, H) and their base logits (S, A, D, V); see :meth:`BlockDrafter.block_hidden`."""
        hidden = self.block_hidden(ids, taps, anchors, embedding)
        return hidden, F.linear(hidden, embedding)

    def greedy_chains(self, batch: DraftBatch) -> Tensor:
        _, base = self(batch.ids, batch.taps, batch.anchors, batch.table)
        previous, chain = batch.ids.gather(1, batch.anchors), []
        for depth in range(self.num_drafts):
            previous = (base[..., depth, :].float() + self.markov_head(previous)).argmax(-1)
            chain.append(previous)
        return torch.stack(chain, dim=-1)
