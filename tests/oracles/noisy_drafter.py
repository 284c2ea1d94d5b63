"""A drafter that knows the answer and spoils some of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot.draft import Draft, DrafterState, Lattice

__all__ = ["NoisyDrafter"]


class NoisyState:
    """How far the request is."""

    memory_bytes = 0

    def __init__(self) -> None:
        self.num_tokens = 0


class NoisyDrafter:
    """Proposes the tokens of ``known``, each with probability ``share_right``, otherwise its neighbour's id."""

    name, block_size, max_positions, target_taps, memory_bytes = "noisy", 8, 31, (), 0

    def __init__(self, known: Sequence[int], share_right: float) -> None:
        self._known = torch.tensor(known)
        self._share_right = share_right
        self._generator = torch.Generator().manual_seed(0)
        self.num_right = 0

    def new_state(self, max_tokens: int) -> NoisyState:
        return NoisyState()

    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        assert isinstance(state, NoisyState)
        state.num_tokens += len(token_ids)

    def propose(
        self,
        state: DrafterState,
        anchor_id: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        num_positions: int | None = None,
    ) -> Draft:
        places = torch.arange(num_positions or 7) + state.num_tokens + 1
        truth = self._known[places.clamp(max=len(self._known) - 1)]
        is_right = torch.rand(len(places), generator=self._generator) < self._share_right
        self.num_right += int(is_right.sum())
        ids = torch.where(is_right, truth, (truth + 1) % 300)
        return Draft(ids, None, Lattice(ids[:, None], torch.zeros(len(ids), 1, 1)))
