"""One sequence being decoded: its target state, its drafter state, and what a step does to both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specpilot.draft.drafter import Draft, Drafter
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser

__all__ = ["DecodingSequence", "StepResult", "room_for"]


@dataclass(frozen=True)
class StepResult:
    """Tokens of a step, accepted drafts first and the bonus last; ``draft_us`` is what drafting took."""

    token_ids: list[int]
    num_drafted: int
    draft_us: float


class DecodingSequence:
    """State and arithmetic of one request; knows nothing of text, queues or other requests.

    A step is *opened* (rows are chosen and announced to the state), run by whoever runs the batch, and *accepted*;
    what the accepting call says is kept must then be committed. Between steps every token but the last one is
    committed; the last one is the anchor, the root of the next step. ``last_logits`` (R, V) float32 are the rows the
    newest tokens were chosen from, in their order, as the model gave them. ``max_tokens`` bounds prompt and answer
    together.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        chooser: TokenChooser,
        prompt_ids: Sequence[int],
        max_tokens: int,
    ) -> None:
        self._drafter, self._chooser = drafter, chooser
        self._prompt_ids = prompt_ids
        self._room = room_for(target, drafter, max_tokens)
        self.state = target.new_state(self._room)
        self._draft_state = None if drafter is None else drafter.new_state(self._room)
        self.target_taps = () if drafter is None else drafter.target_taps
        self._anchor = -1
        self._rows = torch.empty(0, dtype=torch.int64)
        self._draft: Draft | None = None
        self._draft_us = 0.0
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
        self._append_context(len(self._rows), taps)

    def choose_first(self, logits: Tensor) -> int:
        """The token after the prompt, from the logits (1, V) of the prompt's last token."""
        self.last_logits = logits
        (self._anchor,) = self._chooser.choose(logits)
        return self._anchor

    def open_step(self) -> Tensor:
        """Open the anchor and, if there is a drafter and room, what it proposes to follow it."""
        began = time.perf_counter()
        num_positions = 0
        if self._drafter is not None:
            num_positions = min(self._drafter.block_size - 1, self._room - self.state.num_tokens - 1)
        self._draft = None
        self._rows = torch.tensor([self._anchor])
        if num_positions > 0:
            assert self._drafter is not None and self._draft_state is not None
            self._draft = self._drafter.propose(
                self._draft_state,
                self._anchor,
                temperature=self._chooser.draft_temperature,
                generator=self._chooser.generator,
                num_positions=num_positions,
            )
            # A drafter may find nothing worth a row: the step is then a plain one.
            if len(self._draft.token_ids):
                self._rows = torch.cat((self._rows, self._draft.token_ids))
            else:
                self._draft = None
        self.state.open_rows(len(self._rows), is_decided=self._draft is None)
        self._draft_us = (time.perf_counter() - began) * 1e6
        return self._rows

    def accept_step(self, logits: Tensor, taps: Tensor) -> StepResult:
        """Choose tokens from the logits (R, V) of the opened rows; as many rows as tokens are kept."""
        draft = self._draft
        tokens = self._chooser.choose(logits, draft)
        self._append_context(len(tokens), taps)
        self._anchor = tokens[-1]
        self.last_logits = logits[: len(tokens)]
        return StepResult(tokens, 0 if draft is None else len(draft.token_ids), self._draft_us)

    def _append_context(self, num_kept: int, taps: Tensor) -> None:
        if self._drafter is not None and self._draft_state is not None:
            self._drafter.append_context(self._draft_state, self._rows[:num_kept], taps[:num_kept])


def room_for(target: Target, drafter: Drafter | None, num_tokens: int) -> int:
    """Tokens a state must hold for ``num_tokens`` of prompt and answer: a step may reach past the last one kept."""
    past_the_end = 0 if drafter is None else drafter.block_size
    return min(target.config.context_length, num_tokens + past_the_end)
