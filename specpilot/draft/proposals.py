"""Drafting for several requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from specpilot.draft.drafter import Draft, Drafter, DrafterState

__all__ = ["BatchDrafter", "ProposeRequest", "propose_all"]


@dataclass(frozen=True, eq=False)
class ProposeRequest:
    """Arguments of one :meth:`specpilot.draft.Drafter.propose`."""

    state: DrafterState
    anchor_id: int
    temperature: float = 0.0
    generator: torch.Generator | None = None
    num_positions: int | None = None


@runtime_checkable
class BatchDrafter(Protocol):
    """What a :class:`specpilot.draft.Drafter` may offer beside: drafts of several requests in one call."""

    def propose_many(self, requests: Sequence[ProposeRequest]) -> list[Draft]:
        """A draft for each request, with the bits that ``propose`` gives. The states are different ones."""
        ...


def propose_all(drafter: Drafter, requests: Sequence[ProposeRequest]) -> list[Draft]:
    """A draft for each request, with the bits it has alone."""
    if isinstance(drafter, BatchDrafter):
        return drafter.propose_many(requests)
    return [
        drafter.propose(
            request.state,
            request.anchor_id,
            temperature=request.temperature,
            generator=request.generator,
            num_positions=request.num_positions,
        )
        for request in requests
    ]
