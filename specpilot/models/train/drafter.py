"""What the training loop needs of a drafter, and the batch it gives to objectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["DraftBatch", "TrainableDrafter", "labels"]


@dataclass(frozen=True)
class DraftBatch:
    """Answers, what the target makes of them, and the anchors to draft from.

    Attributes
    ----------
    ids : Tensor, int64, (S, T)
    taps : Tensor, (S, T, n * H)
        Outputs of the tapped target layers, side by side.
    hidden : Tensor, (S, T, H)
        The target's final hidden states; its head on them is the law of the next token.
    anchors : Tensor, int64, (S, A)
        Positions of the anchor tokens; the context of each is the tokens before it.
    ends : Tensor, int64, (S,)
        One past each sequence's last token.
    table : Tensor, (V, H)
        The target's tied embedding and head.
    """

    ids: Tensor
    taps: Tensor
    hidden: Tensor
    anchors: Tensor
    ends: Tensor
    table: Tensor


def labels(ids: Tensor, anchors: Tensor, ends: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Tokens after each anchor (S, A, depth + 1), anchor first, and which drafted rows exist (S, A, depth)."""
    places = anchors[..., None] + torch.arange(depth + 1, device=ids.device)
    tokens = ids.gather(1, places.clamp_max(ids.shape[1] - 1).flatten(1)).view(places.shape)
    return tokens, places[..., 1:] < ends[:, None, None]


class TrainableDrafter(nn.Module, ABC):
    """A drafter in trainable form; ``state_dict`` is its checkpoint."""

    @abstractmethod
    def config_dict(self) -> dict[str, Any]:
        """config.json of the checkpoint."""

    @property
    @abstractmethod
    def tap_outputs(self) -> tuple[int, ...]:
        """0-based target layers whose outputs are ``DraftBatch.taps``."""

    @property
    @abstractmethod
    def num_drafts(self) -> int:
        """D, the tokens drafted after an anchor."""

    @abstractmethod
    def initialise(self, seed: int) -> None:
        """Start values, the same for the same seed."""

    @abstractmethod
    def greedy_chains(self, batch: DraftBatch) -> Tensor:
        """The chain the drafter proposes greedily after each anchor, int64, (S, A, D)."""
