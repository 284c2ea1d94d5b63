"""A request for scores: a sequence that is only read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot.engines.base import CancelToken, ScoreResult, TokenLogprob
from specpilot.errors import Cancelled
from specpilot.refengine.jobs import OpenRows, Outbox, StepTimes
from specpilot.refengine.state import SequenceState
from specpilot.refengine.target import Target
from specpilot.sampling import token_logprobs

__all__ = ["Scoring"]


class Scoring:
    """A :class:`specpilot.refengine.jobs.Job` with one result. Its tokens run as a prompt does, so streams go on."""

    target_taps: tuple[int, ...] = ()
    is_blocked = False

    def __init__(
        self, target: Target, token_ids: Sequence[int], start: int, num_top: int, cancel: CancelToken
    ) -> None:
        self.cancel, self.is_over, self.is_given_up = cancel, False, False
        self.outbox: Outbox[ScoreResult] = Outbox()
        self.num_reserved_tokens = len(token_ids)
        self._target, self._ids, self._start, self._num_top = target, token_ids, start, num_top
        self._state: SequenceState | None = None
        self._begin = self._end = 0
        self._entries: list[TokenLogprob] = []

    @property
    def num_prompt_left(self) -> int:
        """The last token is scored and not run; a text without scores still takes a step of one row."""
        return max(1, len(self._ids) - 1) - self.state.num_tokens

    @property
    def state(self) -> SequenceState:
        assert self._state is not None, "start comes first"
        return self._state

    def start(self) -> None:
        if self._state is None:
            self._state = self._target.new_state(len(self._ids))

    def want_draft(self) -> None:
        """Nothing is decoded."""

    def note_draft_time(self, draft_us: float) -> None:
        raise AssertionError("a text that is scored wants no drafts")

    def open_rows(self, num_prompt_rows: int) -> OpenRows:
        self._begin = self.state.num_tokens
        self._end = self._begin + num_prompt_rows
        self.state.open_rows(num_prompt_rows, is_decided=True)
        # Row i has the scores of token i + 1.
        first = min(max(self._start - 1 - self._begin, 0), num_prompt_rows)
        if self._end == len(self._ids):
            first = num_prompt_rows
        return OpenRows(torch.tensor(self._ids[self._begin : self._end]), first)

    def accept(self, logits: Tensor, taps: Tensor, times: StepTimes) -> int:
        if len(logits):
            labels = list(self._ids[self._end + 1 - len(logits) : self._end + 1])
            # The most likely one is needed in any case: it is the argmax.
            self._entries += token_logprobs(logits, labels, max(1, self._num_top))
        if self._end >= len(self._ids) - 1:
            self.is_over = True
            entries = self._entries
            self.outbox.put(
                ScoreResult(
                    self._start,
                    tuple(entry.logprob for entry in entries),
                    tuple(entry.top[0][0] for entry in entries),
                    tuple(entry.top[0][1] for entry in entries),
                    tuple(entry.top[: self._num_top] for entry in entries),
                )
            )
        return self._end - self._begin

    def end_cancelled(self) -> None:
        self.fail(Cancelled(f"score: cancelled before all {len(self._ids)} tokens were scored"))

    def fail(self, error: BaseException) -> None:
        self.is_over = True
        self.outbox.fail(error)
