"""One sequence being decoded: its target state, its drafter state, and the step that advances both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specpilot.draft.drafter import Drafter
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser

__all__ = ["DecodingSequence", "StepResult"]


@dataclass(frozen=True)
class StepResult:
    """Tokens of a step, accepted drafts first and the bonus last, with what it took (microseconds)."""

    token_ids: list[int]
    num_drafted: int
    draft_us: float
    verify_us: float


class DecodingSequence:
    """State and arithmetic of one request; knows nothing of text, queues or stopping.

    Between steps every token but the last one is committed; the last one is the anchor, the root of the next step.
    ``last_logits`` (R, V) float32 are the rows the newest tokens were chosen from, in their order, as the model gave
    them. ``max_tokens`` bounds prompt and answer together.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        chooser: TokenChooser,
        max_tokens: int,
    ) -> None:
        self._target, self._drafter, self._chooser = target, drafter, chooser
        # A step may reach past the last token that is kept: the drafts after it.
        room = max_tokens + (0 if drafter is None else drafter.block_size)
        self._room = min(target.config.context_length, room)
        self._state = target.new_state(self._room)
        self._draft_state = None if drafter is None else drafter.new_state(self._room)
        self._anchor = -1
        self.last_logits = torch.empty(0, target.config.vocab_size)

    def prefill(self, ids: Sequence[int]) -> None:
        """Run the next part of the prompt and commit it."""
        hidden = self._run(torch.tensor(ids), len(ids))
        self._last_hidden = hidden[-1:]

    def first_token(self) -> int:
        """The token after the prompt."""
        self.last_logits = self._target.logits(self._last_hidden)
        (self._anchor,) = self._chooser.choose(self.last_logits)
        return self._anchor

    def step(self) -> StepResult:
        """One verify step: draft (if there is a drafter and room), run the target once, keep what it confirms."""
        begun = time.perf_counter()
        num_positions = 0
        if self._drafter is not None:
            num_positions = min(self._drafter.block_size - 1, self._room - self._state.num_tokens - 1)
        draft = None
        ids = torch.tensor([self._anchor])
        if num_positions > 0:
            assert self._drafter is not None and self._draft_state is not None
            draft = self._drafter.propose(
                self._draft_state,
                self._anchor,
                temperature=self._chooser.draft_temperature,
                generator=self._chooser.generator,
                num_positions=num_positions,
            )
            # A drafter may find nothing worth a row: the step is then a plain one.
            draft = draft if draft.token_ids.shape[0] else None
        if draft is not None:
            ids = torch.cat((ids, draft.token_ids))
        drafted = time.perf_counter()
        taps = () if self._drafter is None else self._drafter.target_taps
        out = self._target.forward(ids, self._state, taps=taps)
        logits = self._target.logits(out.hidden)
        tokens = self._chooser.choose(logits, draft)
        self._commit(ids, out.taps, len(tokens))
        self._anchor = tokens[-1]
        self.last_logits = logits[: len(tokens)]
        done = time.perf_counter()
        return StepResult(
            tokens,
            0 if draft is None else draft.token_ids.shape[0],
            (drafted - begun) * 1e6,
            (done - drafted) * 1e6,
        )

    def _run(self, ids: Tensor, num_kept: int) -> Tensor:
        taps = () if self._drafter is None else self._drafter.target_taps
        out = self._target.forward(ids, self._state, taps=taps)
        self._commit(ids, out.taps, num_kept)
        return out.hidden

    def _commit(self, ids: Tensor, taps: Tensor, num_kept: int) -> None:
        self._state.commit(num_kept)
        if self._drafter is not None and self._draft_state is not None:
            self._drafter.append_context(self._draft_state, ids[:num_kept], taps[:num_kept])
