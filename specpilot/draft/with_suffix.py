"""A drafter with the suffix drafter's chain attached to its trees.

A model drafts what is likely in general, the suffix drafter what this text has said before. Both are asked; the chain
of the text comes into the model's lattice with the suffix drafter's own estimates (:class:`AcceptEstimate`, learned
from the request), and the tree builder takes the most likely nodes of both. Chains are drafted by the model alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specpilot.draft.attach_lattice import attach_chain_to_lattice
from specpilot.draft.drafter import Draft, Drafter, DrafterState
from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.draft.suffix import SuffixDrafter, SuffixState
from specpilot.errors import EngineError

__all__ = ["SuffixAttached", "SuffixAttachedState"]

_LEAST = 1e-30  # float32 products of many chances end in 0


@dataclass(frozen=True, eq=False)
class SuffixAttachedState:
    """States of both drafters."""

    inner: DrafterState
    suffix: SuffixState

    @property
    def num_tokens(self) -> int:
        return self.inner.num_tokens

    @property
    def memory_bytes(self) -> int:
        return self.inner.memory_bytes + self.suffix.memory_bytes


@dataclass(frozen=True, eq=False)
class _Mark:
    inner: object
    suffix: object


class SuffixAttached:
    """A :class:`specpilot.draft.Drafter` and :class:`specpilot.draft.TreeDrafter` around another drafter.

    Parameters
    ----------
    drafter
        Drafts chains as it does alone.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.name = f"{drafter.name}+{SuffixDrafter.name}"
        self.block_size, self.max_positions = drafter.block_size, drafter.max_positions
        self.target_taps, self.memory_bytes = drafter.target_taps, drafter.memory_bytes
        self._drafter = drafter
        # The builder weighs the chain's tokens, so the chain is not cut where it would not pay alone.
        self._suffix = SuffixDrafter(drafter.block_size, row_cost=0.0)

    def new_state(self, max_tokens: int) -> SuffixAttachedState:
        return SuffixAttachedState(self._drafter.new_state(max_tokens), self._suffix.new_state(max_tokens))

    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        own = _own(state)
        self._drafter.append_context(own.inner, token_ids, taps)
        self._suffix.append_context(own.suffix, token_ids, taps[:, :0])

    def mark(self, state: DrafterState) -> object:
        """See :class:`specpilot.draft.Drafter`."""
        own = _own(state)
        return _Mark(self._drafter.mark(own.inner), self._suffix.mark(own.suffix))

    def rewind(self, state: DrafterState, mark: object) -> None:
        """See :class:`specpilot.draft.Drafter`."""
        own = _own(state)
        if not isinstance(mark, _Mark):
            raise EngineError(
                f"drafter mark: got {mark!r}, expected one that this drafter made of this state"
            )
        self._drafter.rewind(own.inner, mark.inner)
        self._suffix.rewind(own.suffix, mark.suffix)

    def propose(
        self,
        state: DrafterState,
        anchor_id: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        num_positions: int | None = None,
    ) -> Draft:
        """The chain of the drafter within."""
        request = ProposeRequest(state, anchor_id, temperature, generator, num_positions)
        return self.propose_many([request])[0]

    def propose_tree(self, state: DrafterState, anchor_id: int, *, num_positions: int | None = None) -> Draft:
        """The drafter's lattice for trees with the text's chain of ``num_positions`` tokens at most."""
        request = ProposeRequest(state, anchor_id, num_positions=num_positions, is_tree=True)
        return self.propose_many([request])[0]

    def propose_many(self, requests: Sequence[ProposeRequest]) -> list[Draft]:
        """See :class:`specpilot.draft.proposals.BatchDrafter`."""
        inner = [replace(request, state=_own(request.state).inner) for request in requests]
        drafts = propose_all(self._drafter, inner)
        return [
            self._attach(draft, request) if request.is_tree else draft
            for draft, request in zip(drafts, requests, strict=True)
        ]

    def _attach(self, draft: Draft, request: ProposeRequest) -> Draft:
        state, anchor_id = _own(request.state).suffix, request.anchor_id
        chain = self._suffix.propose(state, anchor_id, num_positions=request.num_positions)
        if not len(chain.token_ids):
            return draft
        assert chain.survival is not None
        reached = [max(chance, _LEAST) for chance in (1.0, *chain.survival.tolist())]
        logprobs = [math.log(after / before) for before, after in itertools.pairwise(reached)]
        return replace(
            draft, lattice=attach_chain_to_lattice(draft.lattice, chain.token_ids.tolist(), logprobs)
        )


def _own(state: DrafterState) -> SuffixAttachedState:
    if not isinstance(state, SuffixAttachedState):
        raise EngineError(
            f"drafter state: got {type(state).__name__}, expected SuffixAttachedState; use a state that new_state of "
            "this drafter made"
        )
    return state
