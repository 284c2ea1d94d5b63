"""Two-level verification: a pass over a low-precision copy of the target before the exact one.

One cycle of a request with N rows a pass:

1. *Draft* a tree of N nodes below the root, the last committed token.
2. *Q pass*: the copy runs the tree on the request's own state, whose rows are dropped again. The walk by its largest
   logits gives the chain C: the accepted nodes and the token after them.
3. *Draft again*: the drafter's context takes in the root and C but its last token, with the Q pass's taps, the last
   token of C is the anchor, and afterwards the context is cut back.
4. *Join*: C below the root, and below its end the second tree, cut so that root, C and it are N rows.
5. *Exact pass* over the joined tree: it alone accepts tokens.

So the copy decides which rows the exact pass verifies and never a token. Nothing is drawn before the exact pass: drafts
are those of temperature 0 and the walk of the Q pass takes the largest logit, so at a temperature above 0 the joined
tree does not depend on the draws that verify it and the law is the target's (:mod:`specpilot.verify.tree`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specpilot.draft.attach import attach_subtree
from specpilot.draft.builders import TreeBuilder
from specpilot.draft.drafter import Draft, Drafter, DrafterState
from specpilot.draft.proposals import ProposeRequest
from specpilot.draft.tree import DraftTree
from specpilot.errors import EngineError
from specpilot.refengine.drafting import Drafting, DraftWish, draft_step
from specpilot.refengine.low_precision import LowPrecisionCopy
from specpilot.refengine.state import SequenceState
from specpilot.sampling import TokenChooser

__all__ = ["Q_CYCLE_COST", "QCycle", "TwoLevelJob", "join_trees", "q_step"]

Q_CYCLE_COST = 2.0
"""Time of a cycle over that of a one-level step, for the gate. Measured with the bundled models, 16 rows, one core:
1.84 to 2.05. On the CPU a pass over a copy costs what the exact pass does, and the draft comes twice."""


class QCycle:
    """Steps 2 to 4 of one request's cycle.

    Parameters
    ----------
    state
        Its rows of ``tree`` are opened before :meth:`take`.
    chooser
        Guesses by its options; draws and remembers nothing here.
    draft_state
        Stands after :meth:`end` where it stood.
    builder
        Makes the second tree.
    tree
        The first one.
    max_nodes
        N.
    num_positions
        Depth of the second draft, at most.
    room
        Most tokens behind the root.

    Attributes
    ----------
    num_rows
        Rows of the Q pass.
    q_us
        What the pass took, all requests together, microseconds.
    chain
        C.
    """

    def __init__(
        self,
        copy: LowPrecisionCopy,
        state: SequenceState,
        chooser: TokenChooser,
        drafter: Drafter,
        draft_state: DrafterState,
        builder: TreeBuilder,
        tree: DraftTree,
        *,
        max_nodes: int,
        num_positions: int,
        room: int,
    ) -> None:
        self.copy, self.state, self.target_taps = copy, state, drafter.target_taps
        self.ids, self.num_rows, self.q_us = torch.from_numpy(tree.token_ids), tree.num_nodes, 0.0
        self.chain: list[int] = []
        self._chooser, self._drafter, self._draft_state = chooser, drafter, draft_state
        self._builder, self._tree = builder, tree
        self._subtree: DraftTree | None = None
        self._max_nodes, self._num_positions, self._room = max_nodes, num_positions, room
        self._mark: object = None
        self._joined: DraftTree | None = None

    def take(self, logits: Tensor, taps: Tensor) -> None:
        """What the copy gave for the rows: logits (T, V), taps (T, len(target_taps) * H). The rows are dropped."""
        walk = self._chooser.guess_path(logits, self._tree)
        # The root and at least one row less than N: the last token may not fit behind a whole chain of N.
        self.chain = walk.token_ids[: self._max_nodes - 1]
        self.state.commit(0)
        path = torch.tensor(walk.rows)
        self._mark = self._drafter.mark(self._draft_state)
        self._drafter.append_context(self._draft_state, self.ids[path], taps[path])

    def want_redraft(self) -> DraftWish | None:
        """What to draft from the end of the chain; None where no row is left for it."""
        max_rows = self._max_nodes - len(self.chain)
        num_positions = min(self._num_positions, self._room - len(self.chain))
        if max_rows < 2 or num_positions < 1:
            return None
        request = ProposeRequest(self._draft_state, self.chain[-1], num_positions=num_positions, is_tree=True)
        temperature = self._chooser.draft_temperature or 1.0
        return DraftWish(
            self._drafter,
            request,
            self._take_redraft,
            self._builder,
            max_rows,
            tree_temperature=temperature,
        )

    def _take_redraft(self, draft: Draft, tree: DraftTree | None) -> None:
        self._subtree = tree

    def end(self) -> None:
        """Cut the drafter's context back and join the trees."""
        self._drafter.rewind(self._draft_state, self._mark)
        self._joined = join_trees(int(self._tree.token_ids[0]), self.chain, self._subtree, self._max_nodes)

    @property
    def joined(self) -> DraftTree:
        """Rows of the exact pass."""
        if self._joined is None:
            raise EngineError("two-level verification: got no joined tree, expected the Q pass to have ended")
        return self._joined


class TwoLevelJob(Drafting, Protocol):
    """The part of a :class:`specpilot.refengine.jobs.Job` that a Q pass is run for."""

    def want_q_pass(self) -> QCycle | None:
        """After the draft. None: the step has one level."""
        ...


class _Redraft:
    """The second draft of a job's step."""

    def __init__(self, job: TwoLevelJob, cycle: QCycle) -> None:
        self._cycle = cycle
        self.note_draft_time, self.fail = job.note_draft_time, job.fail

    def want_draft(self) -> DraftWish | None:
        return self._cycle.want_redraft()


def q_step(jobs: Sequence[TwoLevelJob]) -> None:
    """Steps 2 to 4 for those of ``jobs`` that want them. One that fails ends; the others do not notice.

    Every copy runs once, for all its requests. If that fails, all of them do.
    """
    by_copy: dict[int, list[tuple[TwoLevelJob, QCycle]]] = {}
    for job in jobs:
        try:
            cycle = job.want_q_pass()
        except Exception as error:
            job.fail(error)
        else:
            if cycle is not None:
                by_copy.setdefault(id(cycle.copy), []).append((job, cycle))
    passed = [pair for group in by_copy.values() for pair in _run_copy(group)]
    draft_step([_Redraft(job, cycle) for job, cycle in passed], None)
    for job, cycle in passed:
        try:
            cycle.end()
        except Exception as error:
            job.fail(error)


def _run_copy(group: Sequence[tuple[TwoLevelJob, QCycle]]) -> list[tuple[TwoLevelJob, QCycle]]:
    """One pass over one copy; returns those that took it in."""
    began = time.perf_counter()
    cycles = [cycle for _, cycle in group]
    taps = tuple(sorted({tap for cycle in cycles for tap in cycle.target_taps}))
    target = cycles[0].copy.target
    try:
        out = target.forward_batch(
            torch.cat([cycle.ids for cycle in cycles]), [cycle.state for cycle in cycles], taps=taps
        )
        logits = target.logits(out.hidden)
    except Exception as error:
        for job, _ in group:
            job.fail(error)
        return []
    sizes = [cycle.num_rows for cycle in cycles]
    by_layer = out.taps.view(len(out.taps), len(taps), out.taps.shape[1] // max(1, len(taps)))
    passed = []
    for (job, cycle), rows, tapped in zip(group, logits.split(sizes), by_layer.split(sizes), strict=True):
        if cycle.target_taps != taps:
            tapped = tapped[:, [taps.index(tap) for tap in cycle.target_taps]]
        try:
            cycle.take(rows, tapped.flatten(1))
        except Exception as error:
            job.fail(error)
        else:
            passed.append((job, cycle))
    q_us = (time.perf_counter() - began) * 1e6
    for _, cycle in passed:
        cycle.q_us = q_us
    return passed


def join_trees(root_id: int, chain: Sequence[int], subtree: DraftTree | None, max_nodes: int) -> DraftTree:
    """The chain below the root, and the subtree below its end, in at most ``max_nodes`` nodes.

    Parameters
    ----------
    chain
        At most ``max_nodes - 1`` tokens.
    subtree
        Its root is the last token of the chain, which is one node of the joined tree.

    Raises
    ------
    ValueError
        The chain is too long, or the subtree has another root.
    """
    if len(chain) >= max_nodes:
        raise ValueError(f"chain: got {len(chain)} tokens, expected at most {max_nodes - 1}")
    stem = DraftTree.chain(root_id, chain)
    return stem if subtree is None else attach_subtree(stem, len(chain), subtree, max_nodes)
