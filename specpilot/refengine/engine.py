"""The reference engine: one request at a time, plain or speculative, readable and deterministic."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence

import torch

from specpilot.draft.drafter import Drafter
from specpilot.engines.base import (
    CancelToken,
    Chunk,
    EngineDescription,
    EngineHealth,
    FinishReason,
    GenerateRequest,
    ScoreResult,
    StepRecord,
    TokenLogprob,
)
from specpilot.errors import Cancelled, RequestError
from specpilot.refengine.sequence import DecodingSequence
from specpilot.refengine.target import Target
from specpilot.refengine.text_stream import TextStream
from specpilot.refengine.tokenizer import ChatTokenizer
from specpilot.refengine.turns import Turns
from specpilot.sampling import JsonGrammars, TokenChooser, new_chooser, token_logprobs
from specpilot_kernels.cpu_jit import num_threads

__all__ = ["PREFILL_ROWS", "ReferenceEngine"]

# Rows of one prefill forward: long enough for the matrix products, short enough to cancel and bound memory.
PREFILL_ROWS = 256


class ReferenceEngine:
    """Implements ``specpilot.engines.base.Engine`` over one target and its drafters.

    Parameters
    ----------
    drafters
        By name. ``default_drafter`` is what the description recommends to callers that name none.
    max_waiting
        Requests that may wait for their turn; one more is refused with Overloaded.
    """

    def __init__(
        self,
        model_id: str,
        target: Target,
        drafters: dict[str, Drafter],
        tokenizer: ChatTokenizer,
        *,
        default_drafter: str | None,
        max_waiting: int,
    ) -> None:
        self.target, self.drafters, self.tokenizer = target, drafters, tokenizer
        self._model_id, self._default_drafter = model_id, default_drafter
        self._turns = Turns(max_waiting)
        self._grammars = JsonGrammars(tokenizer, target.config.vocab_size, target.config.eos_ids)

    def describe(self) -> EngineDescription:
        config = self.target.config
        return EngineDescription(
            engine="reference",
            model_id=self._model_id,
            architecture=self.target.architecture,
            numeric_mode=self.target.mode,
            context_length=config.context_length,
            vocab_size=config.vocab_size,
            eos_ids=config.eos_ids,
            drafters=tuple(self.drafters),
            default_drafter=self._default_drafter,
            device="cpu",
            dtype="float32",
            num_threads=num_threads(),
        )

    def health(self) -> EngineHealth:
        running, waiting = self._turns.counts()
        is_draining = self._turns.is_draining
        return EngineHealth(not is_draining, is_draining, running, waiting)

    def tokenize(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokenizer.token_bytes(token_id)

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.tokenizer.encode_chat(messages)

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        self._check_ids(request.prompt_ids, request.sampling.max_new_tokens)
        if request.drafter is not None and request.drafter not in self.drafters:
            known = ", ".join(self.drafters) or "none"
            raise RequestError(f"drafter: got {request.drafter!r}, expected one of: {known}", param="drafter")
        chooser = new_chooser(
            request.sampling,
            request.prompt_ids,
            vocab_size=self.target.config.vocab_size,
            grammars=self._grammars,
        )
        return _Answer(self, request, chooser, cancel or CancelToken(), self._turns.take_ticket())

    @torch.inference_mode()
    def score(
        self,
        token_ids: Sequence[int],
        start: int,
        cancel: CancelToken | None = None,
        *,
        num_top: int = 0,
    ) -> ScoreResult:
        self._check_ids(token_ids, 0)
        if not 1 <= start <= len(token_ids):
            raise RequestError(
                f"start: got {start}, expected 1 to {len(token_ids)} (the first token has no context)"
            )
        if not 0 <= num_top <= 20:
            raise RequestError(f"num_top: got {num_top}, expected 0 to 20", param="logprobs")
        ticket = self._turns.take_ticket()
        try:
            cancel = cancel or CancelToken()
            if not self._turns.wait(ticket, cancel):
                raise Cancelled("score: cancelled while it waited for its turn")
            state = self.target.new_state(len(token_ids))
            entries: list[TokenLogprob] = []
            for first in range(0, len(token_ids) - 1, PREFILL_ROWS):
                if cancel.is_cancelled:
                    raise Cancelled(f"score: cancelled after {first} of {len(token_ids)} tokens")
                rows = torch.tensor(token_ids[first : min(first + PREFILL_ROWS, len(token_ids) - 1)])
                hidden = self.target.forward(rows, state).hidden
                state.commit(len(rows))
                skip = max(0, start - 1 - first)
                if skip >= len(rows):
                    continue
                logits = self.target.logits(hidden[skip:])
                labels = list(token_ids[first + skip + 1 : first + len(rows) + 1])
                # The most likely one is needed in any case: it is the argmax.
                entries += token_logprobs(logits, labels, max(1, num_top))
            return ScoreResult(
                start,
                tuple(entry.logprob for entry in entries),
                tuple(entry.top[0][0] for entry in entries),
                tuple(entry.top[0][1] for entry in entries),
                tuple(entry.top[:num_top] for entry in entries),
            )
        finally:
            self._turns.give_back(ticket)

    def drain(self, timeout_s: float) -> bool:
        return self._turns.drain(timeout_s)

    def _check_ids(self, ids: Sequence[int], max_new_tokens: int) -> None:
        config = self.target.config
        if not ids:
            raise RequestError("prompt: got no tokens, expected at least one", param="prompt")
        wrong = next((token for token in ids if not 0 <= token < config.vocab_size), None)
        if wrong is not None:
            raise RequestError(
                f"prompt: got token id {wrong}, expected 0 to {config.vocab_size - 1}", param="prompt"
            )
        if len(ids) + max_new_tokens > config.context_length:
            raise RequestError(
                f"got {len(ids)} prompt tokens and up to {max_new_tokens} new ones, expected at most "
                f"{config.context_length} together; shorten the prompt or lower max_tokens",
                param="messages",
                code="context_length_exceeded",
            )


class _Answer(Iterator[Chunk]):
    """One running request. Holds its place in the queue from creation until it ends or is closed."""

    def __init__(
        self,
        engine: ReferenceEngine,
        request: GenerateRequest,
        chooser: TokenChooser,
        cancel: CancelToken,
        ticket: object,
    ) -> None:
        self._engine, self._ticket = engine, ticket
        self._chunks = _decode(engine, request, chooser, cancel, ticket)

    def __next__(self) -> Chunk:
        try:
            # Entered here and left before returning: the mode belongs to the thread, not to the iterator.
            with torch.inference_mode():
                chunk = next(self._chunks)
        except BaseException:
            self.close()
            raise
        if chunk.finish_reason is not None:
            self.close()
        return chunk

    def close(self) -> None:
        self._chunks.close()
        self._engine._turns.give_back(self._ticket)

    def __del__(self) -> None:
        self.close()


def _decode(
    engine: ReferenceEngine,
    request: GenerateRequest,
    chooser: TokenChooser,
    cancel: CancelToken,
    ticket: object,
) -> Generator[Chunk, None, None]:
    params = request.sampling
    text = TextStream(params.stop)
    eos_ids = () if params.ignore_eos else engine.target.config.eos_ids
    num_left = params.max_new_tokens

    def chunk(token_ids: list[int], logits: torch.Tensor, step: StepRecord | None) -> Chunk:
        """Cut the step's tokens at the first reason to end, and turn them into text."""
        nonlocal num_left
        kept: list[int] = []
        out, reason = "", None
        for token_id in token_ids:
            kept.append(token_id)
            num_left -= 1
            out += "" if token_id in eos_ids else text.feed(engine.tokenizer.token_bytes(token_id))
            reason = _reason(text.is_stopped or token_id in eos_ids, num_left)
            if reason is not None:
                out += text.finish()
                break
        logprobs = () if params.top_logprobs is None else token_logprobs(logits, kept, params.top_logprobs)
        return Chunk(tuple(kept), out, logprobs, step, reason)

    if not engine._turns.wait(ticket, cancel):
        yield Chunk((), "", finish_reason="cancelled")
        return
    drafter = None if request.drafter is None else engine.drafters[request.drafter]
    max_tokens = len(request.prompt_ids) + params.max_new_tokens
    live = DecodingSequence(engine.target, drafter, chooser, max_tokens)
    for first in range(0, len(request.prompt_ids), PREFILL_ROWS):
        if cancel.is_cancelled:
            yield Chunk((), "", finish_reason="cancelled")
            return
        live.prefill(request.prompt_ids[first : first + PREFILL_ROWS])
    now = chunk([live.first_token()], live.last_logits, None)
    yield now
    while now.finish_reason is None:
        if cancel.is_cancelled:
            yield Chunk((), text.finish(), finish_reason="cancelled")
            return
        began = time.perf_counter()
        result = live.step()
        record = StepRecord(
            num_drafted=result.num_drafted,
            num_correct_drafts=len(result.token_ids) - 1,
            bonus_id=result.token_ids[-1],
            draft_us=result.draft_us,
            verify_us=result.verify_us,
            total_us=(time.perf_counter() - began) * 1e6,
        )
        now = chunk(result.token_ids, live.last_logits, record)
        yield now


def _reason(is_stopped: bool, num_left: int) -> FinishReason | None:
    if is_stopped:
        return "stop"
    return "length" if num_left == 0 else None
