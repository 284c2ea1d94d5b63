"""Drafting for several requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from specpilot.draft.drafter import Draft, Drafter, DrafterState, TreeDrafter

__all__ = ["BatchDrafter", "ProposeRequest", "propose_all"]


@dataclass(frozen=True, eq=False)
class ProposeRequest:
    """Arguments of one :meth:`specpilot.draft.Drafter.propose`.

    With ``is_tree`` a tree will be built from the lattice, and nothing may be drawn: a
    :class:`specpilot.draft.TreeDrafter` then drafts for that.
    """

    state: DrafterState
    anchor_id: int
    temperature: float = 0.0
    generator: torch.Generator | None = None
    num_positions: int | None = None
    is_tree: bool = False

    def __post_init__(self) -> None:
        if self.is_tree and self.temperature != 0.0:
            raise ValueError(
                f"temperature: got {self.temperature} for a tree, expected 0: nothing is drawn for it"
            )


@runtime_checkable
class BatchDrafter(Protocol):
    """What a :class:`specpilot.draft.Drafter` may offer beside: drafts of several requests in one call."""

    def propose_many(self, requests: Sequence[ProposeRequest]) -> list[Draft]:
        """A draft for each request, with the bits it has alone: those of ``propose``, or of ``propose_tree`` where the
        request is for a tree. The states are different ones."""
        ...


def propose_all(drafter: Drafter, requests: Sequence[ProposeRequest]) -> list[Draft]:
    """A draft for each request, with the bits it has alone."""
    if isinstance(drafter, BatchDrafter):
        return drafter.propose_many(requests)
    return [_propose(drafter, request) for request in requests]


def _propose(drafter: Drafter, request: ProposeRequest) -> Draft:
    if request.is_tree and isinstance(drafter, TreeDrafter):
        return drafter.propose_tree(request.state, request.anchor_id, num_positions=request.num_positions)
    return drafter.propose(
        request.state,
        request.anchor_id,
        temperature=request.temperature,
        generator=request.generator,
        num_positions=request.num_positions,
    )
