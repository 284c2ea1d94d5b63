"""Drafts and trees of a step: what all decoding requests want drafted, each drafter asked once.

A request is on its own as far as failures go: whatever goes wrong in a call for several of them is tried again for each
alone, and only the one that fails there ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specpilot.draft.builders import TreeBuilder, share_nodes
from specpilot.draft.builders.cost_aware import CostAwareBuilder
from specpilot.draft.drafter import Draft, Drafter
from specpilot.draft.lattice import Lattice
from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.draft.tree import DraftTree
from specpilot.errors import EngineError

__all__ = ["DraftWish", "Drafting", "draft_step", "fulfil"]


@dataclass(frozen=True, eq=False)
class DraftWish:
    """What one sequence wants drafted for its next step.

    Attributes
    ----------
    builder
        Makes the tree; None: the draft's own chain is verified.
    max_rows
        Most rows of the tree, root included.
    is_sharing
        The tree is a share of the step's node budget.
    tree_temperature
        Edge scores are divided by it before the tree is built: the temperature at which the target draws.
    take
        Called with the draft, and its tree where there is a builder.
    """

    drafter: Drafter
    request: ProposeRequest
    take: Callable[[Draft, DraftTree | None], None]
    builder: TreeBuilder | None = None
    max_rows: int = 1
    is_sharing: bool = False
    tree_temperature: float = 1.0

    def tree_lattice(self, draft: Draft) -> Lattice:
        """The lattice as the builder ranks it."""
        return draft.lattice.at_temperature(self.tree_temperature)


class Drafting(Protocol):
    """The part of a :class:`specpilot.refengine.jobs.Job` that is drafted for."""

    def want_draft(self) -> DraftWish | None:
        """None: the next step is a plain one."""
        ...

    def note_draft_time(self, draft_us: float) -> None:
        """What a drafting for the step took, all requests together, microseconds; a step may have two."""
        ...

    def fail(self, error: BaseException) -> None: ...


def draft_step(jobs: Sequence[Drafting], node_budget: int | None) -> None:
    """Draft for a step of ``jobs``, which decode. One that fails ends; the others do not notice."""
    began = time.perf_counter()
    asked: list[tuple[Drafting, DraftWish]] = []
    for job in jobs:
        try:
            wish = job.want_draft()
        except Exception as error:
            job.fail(error)
        else:
            if wish is not None:
                asked.append((job, wish))
    if not asked:
        return
    _fulfil_each(asked, node_budget)
    draft_us = (time.perf_counter() - began) * 1e6
    for job, _ in asked:
        job.note_draft_time(draft_us)


def fulfil(wishes: Sequence[DraftWish], node_budget: int | None = None) -> None:
    """Draft, build trees and hand both over. Raises what any of the drafters or builders raises."""
    shared: list[tuple[DraftWish, Draft]] = []
    for wish, draft in zip(wishes, _drafts(wishes), strict=True):
        if wish.builder is None or not len(draft.token_ids):
            wish.take(draft, None)
        elif wish.is_sharing:
            shared.append((wish, draft))
        else:
            lattice, root_id = wish.tree_lattice(draft), wish.request.anchor_id
            wish.take(draft, wish.builder.build(lattice, root_id, wish.max_rows))
    if not shared:
        return
    if node_budget is None:
        raise EngineError("drafting: got requests that share nodes and no budget; give the step one")
    trees = share_nodes(
        [wish.tree_lattice(draft) for wish, draft in shared],
        [wish.request.anchor_id for wish, _ in shared],
        # A request has its root in any case.
        max(node_budget, len(shared)),
    )
    for (wish, draft), tree in zip(shared, trees, strict=True):
        share = tree.prefix(min(tree.num_nodes, wish.max_rows))
        # By the cost of a step of its own: what it leaves is not given to others.
        wish.take(draft, wish.builder.cut(share) if isinstance(wish.builder, CostAwareBuilder) else share)


def _fulfil_each(asked: Sequence[tuple[Drafting, DraftWish]], node_budget: int | None) -> None:
    """:func:`fulfil` for all at once, and after a failure for each alone, from where its generator stood."""
    if len(asked) == 1:
        [(job, wish)] = asked
        try:
            fulfil([wish], node_budget)
        except Exception as error:
            job.fail(error)
        return
    generators = [wish.request.generator for _, wish in asked]
    before = [None if generator is None else generator.get_state() for generator in generators]
    try:
        fulfil([wish for _, wish in asked], node_budget)
    except Exception:
        share = None if node_budget is None else max(1, node_budget // len(asked))
        for pair, generator, state in zip(asked, generators, before, strict=True):
            if generator is not None and state is not None:
                generator.set_state(state)
            _fulfil_each([pair], share)


def _drafts(wishes: Sequence[DraftWish]) -> list[Draft]:
    """A draft for each, every drafter asked once."""
    by_drafter: dict[int, list[int]] = {}
    for index, wish in enumerate(wishes):
        by_drafter.setdefault(id(wish.drafter), []).append(index)
    drafts: dict[int, Draft] = {}
    for indices in by_drafter.values():
        proposed = propose_all(wishes[indices[0]].drafter, [wishes[index].request for index in indices])
        drafts.update(zip(indices, proposed, strict=True))
    return [drafts[index] for index in range(len(wishes))]
