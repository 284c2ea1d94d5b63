"""A request for an answer: its sequence, its text, and the chunks its reader gets."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft.recording import RecordedTimes, StepRecorder
from specpilot.draft.tree import DraftTree
from specpilot.engines.base import CancelToken, Chunk, FinishReason, GenerateRequest, StepRecord
from specpilot.refengine.drafting import DraftWish
from specpilot.refengine.jobs import OpenRows, Outbox, StepTimes
from specpilot.refengine.sequence import DecodingSequence, StepResult, room_for
from specpilot.refengine.speculation import SpeculationPlan
from specpilot.refengine.state import SequenceState
from specpilot.refengine.target import Target
from specpilot.refengine.text_stream import TextStream
from specpilot.refengine.tokenizer import ChatTokenizer
from specpilot.sampling import TokenChooser, token_logprobs

__all__ = ["Generation"]


class Generation:
    """A :class:`specpilot.refengine.jobs.Job` whose results are chunks; the last one has a finish reason."""

    def __init__(
        self,
        target: Target,
        plan: SpeculationPlan,
        tokenizer: ChatTokenizer,
        request: GenerateRequest,
        chooser: TokenChooser,
        cancel: CancelToken,
        recorder: StepRecorder | None = None,
        record_id: str = "",
    ) -> None:
        self.cancel, self.is_over, self.is_given_up = cancel, False, False
        self.outbox: Outbox[Chunk] = Outbox()
        self._target, self._plan, self._tokenizer, self._request = target, plan, tokenizer, request
        self._chooser, self._recorder, self._record_id = chooser, recorder, record_id
        params = request.sampling
        self._max_tokens = len(request.prompt_ids) + params.max_new_tokens
        self.num_reserved_tokens = room_for(target, plan, self._max_tokens)
        self._text = TextStream(params.stop)
        self._eos_ids = () if params.ignore_eos else target.config.eos_ids
        self._num_left = params.max_new_tokens
        self._live: DecodingSequence | None = None
        self._is_prompt = True
        self._draft_us = 0.0

    @property
    def is_blocked(self) -> bool:
        return self.outbox.is_full

    @property
    def num_prompt_left(self) -> int:
        return self._sequence.num_prompt_left

    @property
    def state(self) -> SequenceState:
        return self._sequence.state

    @property
    def target_taps(self) -> tuple[int, ...]:
        return self._sequence.target_taps

    def start(self) -> None:
        if self._live is None:
            self._live = DecodingSequence(
                self._target, self._plan, self._chooser, self._request.prompt_ids, self._max_tokens
            )

    @property
    def _sequence(self) -> DecodingSequence:
        assert self._live is not None, "start comes first"
        return self._live

    def want_draft(self) -> DraftWish | None:
        self._draft_us = 0.0
        return self._sequence.want_draft()

    def note_draft_time(self, draft_us: float) -> None:
        self._draft_us = draft_us

    def open_rows(self, num_prompt_rows: int) -> OpenRows:
        self._is_prompt = num_prompt_rows > 0
        if not self._is_prompt:
            return OpenRows(self._sequence.open_step(), 0)
        is_last = num_prompt_rows == self._sequence.num_prompt_left
        ids = self._sequence.open_prompt(num_prompt_rows)
        return OpenRows(ids, num_prompt_rows - is_last)

    def accept(self, logits: Tensor, taps: Tensor, times: StepTimes) -> int | NDArray[np.int64]:
        if self._is_prompt:
            self._sequence.accept_prompt(taps)
            if len(logits):
                self._put([self._sequence.choose_first(logits)], None)
            return self._sequence.state.num_pending
        result = self._sequence.accept_step(logits, taps)
        now = time.perf_counter()
        record = StepRecord(
            num_drafted=result.num_drafted,
            num_correct_drafts=len(result.token_ids) - 1,
            bonus_id=result.token_ids[-1],
            draft_us=self._draft_us,
            verify_us=(now - times.forward_began) * 1e6,
            total_us=(now - times.step_began) * 1e6,
            num_positions=result.num_positions,
            mechanism=result.mechanism,
            fallback=self._request.fallback,
        )
        if self._recorder is not None:
            self._record(self._recorder, result, record)
        self._put(result.token_ids, record)
        return result.kept

    def _record(self, recorder: StepRecorder, result: StepResult, step: StepRecord) -> None:
        if result.lattice is None or self._plan.drafter is None:
            return
        root_id, *draft_ids = result.row_ids.tolist()
        recorder.record(
            self._record_id,
            result.lattice,
            root_id,
            result.tree or DraftTree.chain(root_id, draft_ids),
            result.token_ids,
            RecordedTimes(step.draft_us, step.verify_us, step.total_us),
            drafter=self._plan.drafter.name,
            position=result.position,
        )

    def end_cancelled(self) -> None:
        self._finish(Chunk((), self._text.finish(), finish_reason="cancelled"))

    def fail(self, error: BaseException) -> None:
        self.is_over = True
        self.outbox.fail(error)

    def _put(self, token_ids: list[int], step: StepRecord | None) -> None:
        """Cut the step's tokens at the first reason to end, and turn them into text."""
        kept: list[int] = []
        out, reason = "", None
        for token_id in token_ids:
            kept.append(token_id)
            self._num_left -= 1
            is_eos = token_id in self._eos_ids
            out += "" if is_eos else self._text.feed(self._tokenizer.token_bytes(token_id))
            reason = self._reason(self._text.is_stopped or is_eos)
            if reason is not None:
                out += self._text.finish()
                break
        top = self._request.sampling.top_logprobs
        logprobs = () if top is None else token_logprobs(self._sequence.last_logits, kept, top)
        chunk = Chunk(tuple(kept), out, logprobs, step, reason)
        if reason is None:
            self.outbox.put(chunk)
        else:
            self._finish(chunk)

    def _finish(self, chunk: Chunk) -> None:
        # In this order: whoever reads the last chunk finds the request over.
        self.is_over = True
        self.outbox.put(chunk)

    def _reason(self, is_stopped: bool) -> FinishReason | None:
        if is_stopped:
            return "stop"
        return "length" if self._num_left == 0 else None
