"""A drafter that knows the answer and puts it on a branch of its lattice, for as many tokens as it is told."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot.draft import Draft, DrafterState, Lattice

__all__ = ["KnowingDrafter"]


class KnowingState:
    memory_bytes = 0

    def __init__(self) -> None:
        self.num_tokens = self.num_steps = 0


class KnowingDrafter:
    """Two candidates a depth: the wrong one scores higher, the right one stands beside it while it is told.

    Parameters
    ----------
    known
        Prompt and answer. Committed tokens are compared with it: a path that is committed wrongly raises.
    right
        In the i-th draft of a request the right token is a candidate for the first ``right[i]`` depths, the list
        repeated. Trees of 2 ** (D + 1) - 1 nodes hold every path.
    """

    name, block_size, max_positions, target_taps, memory_bytes = "knowing", 5, 31, (), 0

    def __init__(self, known: Sequence[int], right: Sequence[int], vocab_size: int) -> None:
        self._known, self._right, self._vocab_size = list(known), list(right), vocab_size

    def new_state(self, max_tokens: int) -> KnowingState:
        return KnowingState()

    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        assert isinstance(state, KnowingState)
        expected = self._known[state.num_tokens : state.num_tokens + len(token_ids)]
        assert token_ids.tolist()[: len(expected)] == expected, "committed tokens are not the answer's"
        assert taps.shape == (len(token_ids), 0)
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
        assert isinstance(state, KnowingState)
        depth = num_positions or self.block_size - 1
        right = self._right[state.num_steps % len(self._right)]
        state.num_steps += 1
        ids = torch.empty(depth, 2, dtype=torch.int64)
        for t in range(depth):
            place = min(state.num_tokens + 1 + t, len(self._known) - 1)
            truth = self._known[place]
            ids[t] = torch.tensor([truth + 1, truth if t < right else truth + 2]) % self._vocab_size
        scores = torch.zeros(depth, 2, 2)
        scores[:, :, 0] = 0.5
        q_rows = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(depth, 2) if temperature else None
        return Draft(ids[:, 0].clone(), q_rows, Lattice(ids, scores))
