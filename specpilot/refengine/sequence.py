"""One sequence being decoded: its target state, its drafter state, and what a step does to both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft.block_policy import BlockPolicy, expected_drafts
from specpilot.draft.drafter import Draft
from specpilot.draft.lattice import Lattice
from specpilot.draft.proposals import ProposeRequest
from specpilot.draft.tree import DraftTree
from specpilot.refengine.drafting import DraftWish
from specpilot.refengine.speculation import SpeculationPlan
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser

__all__ = ["DecodingSequence", "StepResult", "room_for"]


@dataclass(frozen=True)
class StepResult:
    """What a step gave.

    Attributes
    ----------
    token_ids
        Accepted drafts, then the bonus.
    kept
        Rows to commit: how many of the first ones, or an increasing array of rows, a path from the root.
    num_drafted
        Rows behind the root.
    num_positions
        Depth of the deepest of them.
    mechanism
        ``plain``, or the name in the plan.
    row_ids : Tensor, int64, (R,)
        Tokens of the rows, the root first.
    position
        How many tokens were committed before the root.
    lattice
        The draft's; of depth 0 where the drafter had nothing to propose, None where it was not asked.
    tree
        What was verified of it; None: the chain.
    """

    token_ids: list[int]
    kept: int | NDArray[np.int64]
    num_drafted: int
    num_positions: int
    mechanism: str
    row_ids: Tensor
    position: int
    lattice: Lattice | None
    tree: DraftTree | None


class DecodingSequence:
    """State and arithmetic of one request; knows nothing of text, queues or other requests.

    A step is *drafted* (:meth:`want_draft`, and whoever runs the batch has it made), *opened* (rows are chosen and
    announced to the state), run by whoever runs the batch, and *accepted*; what the accepting call says is kept must
    then be committed. Between steps every token but the last one is committed; the last one is the anchor, the root of
    the next step. ``last_logits`` (R, V) float32 are the rows the newest tokens were chosen from, in their order, as
    the model gave them. ``max_tokens`` bounds prompt and answer together.
    """

    def __init__(
        self,
        target: Target,
        plan: SpeculationPlan,
        chooser: TokenChooser,
        prompt_ids: Sequence[int],
        max_tokens: int,
    ) -> None:
        self._plan, self._chooser = plan, chooser
        self._drafter = drafter = plan.drafter
        self._prompt_ids = prompt_ids
        self._room = room_for(target, plan, max_tokens)
        self.state = target.new_state(self._room)
        self._draft_state = None if drafter is None else drafter.new_state(self._room)
        self.target_taps = () if drafter is None else drafter.target_taps
        self._blocks = BlockPolicy() if plan.num_positions is None else None
        self._anchor = -1
        self._rows = torch.empty(0, dtype=torch.int64)
        self._draft: Draft | None = None
        self._tree: DraftTree | None = None
        self._lattice: Lattice | None = None
        self.last_logits = torch.empty(0, target.config.vocab_size)

    @property
    def num_prompt_left(self) -> int:
        """Prompt tokens that have not been run; 0 once the answer has begun."""
        return max(0, len(self._prompt_ids) - self.state.num_tokens)

    def open_prompt(self, num_rows: int) -> Tensor:
        """Open the next ``num_rows`` tokens of the prompt, 1 to ``num_prompt_left``."""
        begin = self.state.num_tokens
        self._rows = torch.tensor(self._prompt_ids[begin : begin + num_rows])
        self.state.open_rows(num_rows, is_decided=True)
        return self._rows

    def accept_prompt(self, taps: Tensor) -> None:
        """All opened rows are kept."""
        self._append_context(self._rows, taps)

    def choose_first(self, logits: Tensor) -> int:
        """The token after the prompt, from the logits (1, V) of the prompt's last token."""
        self.last_logits = logits
        (self._anchor,) = self._chooser.choose(logits)
        return self._anchor

    def want_draft(self) -> DraftWish | None:
        """What is to be drafted before :meth:`open_step`; None if there is no drafter or no room."""
        self._draft = self._tree = self._lattice = None
        plan, chooser = self._plan, self._chooser
        num_positions = self._blocks.num_rows - 1 if self._blocks is not None else plan.num_positions or 0
        num_positions = min(num_positions, self._room - self.state.num_tokens - 1)
        if plan.drafter is None or self._draft_state is None or plan.max_rows < 2 or num_positions < 1:
            return None
        if plan.builder is None:
            request = ProposeRequest(
                self._draft_state, self._anchor, chooser.draft_temperature, chooser.generator, num_positions
            )
            return DraftWish(plan.drafter, request, self._take_draft)
        # A tree must not depend on the draws that verify it, so nothing is drawn for it.
        request = ProposeRequest(self._draft_state, self._anchor, num_positions=num_positions)
        return DraftWish(
            plan.drafter,
            request,
            self._take_draft,
            plan.builder,
            plan.max_rows,
            plan.is_sharing,
            chooser.draft_temperature or 1.0,
        )

    def _take_draft(self, draft: Draft, tree: DraftTree | None) -> None:
        self._lattice = draft.lattice
        # A drafter may find nothing worth a row: the step is then a plain one.
        if not len(draft.token_ids):
            return
        self._draft, self._tree = draft, tree
        if tree is None:
            self._draft = _cut(draft, self._plan.max_rows - 1)

    def open_step(self) -> Tensor:
        """Open the anchor and what was drafted to follow it."""
        tree = self._tree
        if tree is not None:
            self._rows = torch.from_numpy(tree.token_ids)
            if tree.num_nodes == 1:
                self.state.open_rows(1, is_decided=True)
            elif tree.is_chain:
                self.state.open_rows(tree.num_nodes)
            else:
                self.state.open_rows(tree.num_nodes, parents=tree.parents)
            return self._rows
        self._rows = torch.tensor([self._anchor])
        if self._draft is not None:
            self._rows = torch.cat((self._rows, self._draft.token_ids))
        self.state.open_rows(len(self._rows), is_decided=self._draft is None)
        return self._rows

    def accept_step(self, logits: Tensor, taps: Tensor) -> StepResult:
        """Choose tokens from the logits (R, V) of the opened rows; as many rows as tokens are kept."""
        draft, tree = self._draft, self._tree
        kept: int | NDArray[np.int64]
        if tree is None:
            tokens = self._chooser.choose(logits, draft)
            kept = len(tokens)
            self._append_context(self._rows[:kept], taps[:kept])
            self.last_logits = logits[:kept]
            num_drafted = num_positions = 0 if draft is None else len(draft.token_ids)
        else:
            walk = self._chooser.choose_path(logits, tree)
            tokens, kept = walk.token_ids, np.array(walk.rows)
            path = torch.from_numpy(kept)
            self._append_context(self._rows[path], taps[path])
            self.last_logits = logits[path]
            num_drafted, num_positions = tree.num_nodes - 1, int(tree.depths.max())
            # A path of the first rows is committed as such.
            if kept[-1] == len(kept) - 1:
                kept = len(kept)
        if self._blocks is not None and draft is not None:
            self._blocks.learn(len(tokens) - 1, expected_drafts(draft))
        self._anchor = tokens[-1]
        return StepResult(
            tokens,
            kept,
            num_drafted,
            num_positions,
            "plain" if draft is None else self._plan.name,
            self._rows,
            self.state.num_tokens,
            self._lattice,
            tree,
        )

    def _append_context(self, token_ids: Tensor, taps: Tensor) -> None:
        if self._drafter is not None and self._draft_state is not None:
            self._drafter.append_context(self._draft_state, token_ids, taps)


def _cut(draft: Draft, length: int) -> Draft:
    """The first ``length`` tokens, 1 or more, of a draft."""
    if length >= len(draft.token_ids):
        return draft
    lattice = draft.lattice
    ids, scores = lattice.candidate_ids[:length], lattice.edge_scores[:length]
    return Draft(
        draft.token_ids[:length],
        None if draft.q_rows is None else draft.q_rows[:length],
        replace(lattice, candidate_ids=ids, edge_scores=scores),
        None if draft.q_ids is None else draft.q_ids[:length],
        None if draft.survival is None else draft.survival[:length],
    )


def room_for(target: Target, plan: SpeculationPlan, num_tokens: int) -> int:
    """Tokens a state must hold for ``num_tokens`` of prompt and answer: a step may reach past the last one kept."""
    past_the_end = 0 if plan.drafter is None else max(plan.max_rows, plan.drafter.block_size)
    return min(target.config.context_length, num_tokens + past_the_end)
