"""A real, very small engine: a byte-level n-gram language model behind the Engine contract.

It is here to inject what a healthy engine does not do on request: slow steps, a failure in the middle of an
answer, a crowded waiting room. Every byte is a token, so answers with accents split characters over steps.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Sequence

import torch

from specpilot.engines.base import (
    CancelToken,
    Chunk,
    EngineDescription,
    EngineHealth,
    FinishReason,
    GenerateRequest,
    SamplingParams,
    ScoreResult,
    StepRecord,
    TokenLogprob,
)
from specpilot.errors import Overloaded, RequestError
from specpilot.sampling import JsonGrammars, TokenChooser, new_chooser

TEXT = (
    "The café opens at nine. Tom has 3 apples and buys 4 more, so he has 7 apples. "
    "日本語の文字 are three bytes each. The owl 🦉 sleeps by day and the naïve résumé lies on the table. "
    "Tom gives 2 apples to Ann, so he has 5 apples. "
) * 2

END = 256
ROLES = {"system": 257, "user": 258, "assistant": 259}
VOCAB_SIZE = 260
ORDER = 4
NUM_DRAFTS = 4
CONTEXT_LENGTH = 2048


class NgramModel:
    """Next-byte distributions of the longest known context; a floor keeps every id possible."""

    def __init__(self, text: str, order: int) -> None:
        self._order = order
        self._counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        ids = list(text.encode())
        for index, token_id in enumerate(ids):
            for length in range(min(order, index) + 1):
                self._counts[tuple(ids[index - length : index])][token_id] += 1

    def probabilities(self, ids: Sequence[int]) -> list[float]:
        for length in range(min(self._order, len(ids)), -1, -1):
            counts = self._counts.get(tuple(ids[len(ids) - length :]))
            if counts is not None:
                floor, total = 1e-4, sum(counts.values())
                norm = total + floor * VOCAB_SIZE
                return [(counts.get(token_id, 0) + floor) / norm for token_id in range(VOCAB_SIZE)]
        raise AssertionError("the empty context is always known")


class _Answer(Iterator[Chunk]):
    """A generator that gives its place back even when it is closed before its first item."""

    def __init__(self, chunks: Generator[Chunk, None, None], ticket: object, engine: TinyEngine) -> None:
        self._chunks, self._ticket, self._engine = chunks, ticket, engine

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        self._chunks.close()
        self._engine.leave(self._ticket)


def argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda index: (values[index], -index))


class TinyEngine:
    """The contract on an n-gram model. ``drafter="bigram"`` drafts four bytes from a shorter context.

    Parameters
    ----------
    step_delay_s, prefill_delay_s
        Slept before every step and before the first one.
    fail_after_steps
        Raise RuntimeError after so many steps of an answer.
    """

    def __init__(
        self,
        *,
        max_concurrency: int = 1,
        max_waiting: int = 8,
        step_delay_s: float = 0.0,
        prefill_delay_s: float = 0.0,
        fail_after_steps: int | None = None,
    ) -> None:
        self.step_delay_s = step_delay_s
        self.prefill_delay_s = prefill_delay_s
        self.fail_after_steps = fail_after_steps
        self._grammars = JsonGrammars(self, VOCAB_SIZE, [END])
        self._target, self._drafter = NgramModel(TEXT, ORDER), NgramModel(TEXT, 2)
        self._max_concurrency, self._max_waiting = max_concurrency, max_waiting
        self._turns: deque[object] = deque()
        self._num_running = 0
        self._is_draining = False
        self._changed = threading.Condition()

    vocab_size = VOCAB_SIZE

    def encode(self, text: str) -> list[int]:
        """What a grammar calls ``tokenize``."""
        return self.tokenize(text)

    def describe(self) -> EngineDescription:
        return EngineDescription(
            engine="tiny",
            model_id="tiny-ngram",
            architecture="byte n-gram",
            numeric_mode="judge",
            context_length=CONTEXT_LENGTH,
            vocab_size=VOCAB_SIZE,
            eos_ids=(END,),
            drafters=("bigram",),
            default_drafter="bigram",
            device="cpu",
            dtype="float64",
            num_threads=1,
        )

    def health(self) -> EngineHealth:
        with self._changed:
            return EngineHealth(True, self._is_draining, self._num_running, len(self._turns))

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [ROLES[message["role"]], *message["content"].encode(), END]
        return [*ids, ROLES["assistant"]]

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        ids, sampling = list(request.prompt_ids), request.sampling
        if not ids:
            raise RequestError("prompt: got no tokens, expected at least one", param="prompt")
        if any(not 0 <= i < VOCAB_SIZE for i in ids):
            raise RequestError("prompt: token id outside the vocabulary", param="prompt")
        if len(ids) + sampling.max_new_tokens > CONTEXT_LENGTH:
            raise RequestError("prompt: too long", param="prompt", code="context_length_exceeded")
        if request.drafter not in (None, "bigram"):
            raise RequestError(f"drafter: got {request.drafter!r}, expected 'bigram'", param="drafter")
        chooser = new_chooser(sampling, ids, vocab_size=VOCAB_SIZE, grammars=self._grammars)
        ticket = object()
        with self._changed:
            is_full = len(self._turns) >= self._max_waiting and self._num_running >= self._max_concurrency
            if self._is_draining or is_full:
                raise Overloaded("the waiting room is full", retry_after_s=2.0)
            self._turns.append(ticket)
        return _Answer(
            self._answer(ticket, ids, sampling, chooser, request.drafter, cancel or CancelToken()),
            ticket,
            self,
        )

    def _answer(
        self,
        ticket: object,
        ids: list[int],
        sampling: SamplingParams,
        chooser: TokenChooser,
        drafter: str | None,
        cancel: CancelToken,
    ) -> Generator[Chunk, None, None]:
        try:
            with self._changed:
                while not (self._turns[0] is ticket and self._num_running < self._max_concurrency):
                    if cancel.is_cancelled:
                        break
                    self._changed.wait(0.02)
                is_let_in = not cancel.is_cancelled
                if is_let_in:
                    self._turns.remove(ticket)
                    self._num_running += 1
                    self._changed.notify_all()
            if not is_let_in:
                yield Chunk((), "", finish_reason="cancelled")
                return
            try:
                time.sleep(self.prefill_delay_s)
                yield from self._decode(ids, sampling, chooser, drafter, cancel)
            finally:
                with self._changed:
                    self._num_running -= 1
                    self._changed.notify_all()
        finally:
            self.leave(ticket)

    def leave(self, ticket: object) -> None:
        """Give up a place in the waiting room, if it is still held."""
        with self._changed:
            if ticket in self._turns:
                self._turns.remove(ticket)
                self._changed.notify_all()

    def _decode(
        self,
        ids: list[int],
        sampling: SamplingParams,
        chooser: TokenChooser,
        drafter: str | None,
        cancel: CancelToken,
    ) -> Iterator[Chunk]:
        num_prompt, sent, num_steps = len(ids), "", 0
        finish: FinishReason | None = None
        while finish is None:
            if cancel.is_cancelled:
                yield Chunk((), "", finish_reason="cancelled")
                return
            if num_steps == self.fail_after_steps:
                raise RuntimeError("secret detail: /etc/tiny-engine.conf line 12")
            time.sleep(self.step_delay_s)
            num_steps += 1
            drafts = self._draft(ids) if drafter else []
            new: list[int] = []
            logprobs: list[TokenLogprob] = []
            num_correct = 0
            for position in range(len(drafts) + 1):
                p = self._target.probabilities(ids + new)
                (token_id,) = chooser.choose(torch.tensor([p]).log())
                new.append(token_id)
                if sampling.top_logprobs is not None:
                    best = sorted(range(VOCAB_SIZE), key=lambda i, p=p: (-p[i], i))[: sampling.top_logprobs]  # type: ignore[misc]
                    top = tuple((i, math.log(p[i])) for i in best)
                    logprobs.append(TokenLogprob(token_id, math.log(p[token_id]), top))
                if position == len(drafts) or drafts[position] != token_id:
                    break
                num_correct += 1
            step = StepRecord(len(drafts), num_correct, new[-1], 1.0, 1.0, 2.0)
            kept, finish = self._truncate(ids[num_prompt:], new, sampling)
            ids += kept
            text, finish = self._final_text(ids[num_prompt:], sampling.stop, finish)
            yield Chunk(tuple(kept), text[len(sent) :], tuple(logprobs[: len(kept)]), step, finish)
            sent = text

    def _draft(self, ids: list[int]) -> list[int]:
        drafts: list[int] = []
        for _ in range(NUM_DRAFTS):
            drafts.append(argmax(self._drafter.probabilities(ids + drafts)))
        return drafts

    @staticmethod
    def _truncate(
        answer: list[int], new: list[int], sampling: SamplingParams
    ) -> tuple[list[int], FinishReason | None]:
        if END in new and not sampling.ignore_eos:
            new = new[: new.index(END) + 1]
        if len(answer) + len(new) >= sampling.max_new_tokens:
            new = new[: sampling.max_new_tokens - len(answer)]
            return new, "stop" if END in new and not sampling.ignore_eos else "length"
        return new, "stop" if END in new and not sampling.ignore_eos else None

    def _final_text(
        self, answer: list[int], stop: tuple[str, ...], finish: FinishReason | None
    ) -> tuple[str, FinishReason | None]:
        """The part of the decoded answer that can no longer change."""
        text = self.detokenize(answer)
        ends = [text.find(word) for word in stop if word in text]
        if ends:
            return text[: min(ends)], "stop"
        if finish is not None:
            return text, finish
        text = text.rstrip("\ufffd")
        held = [length for word in stop for length in range(1, len(word)) if text.endswith(word[:length])]
        return text[: len(text) - max(held, default=0)], None

    def score(
        self,
        token_ids: Sequence[int],
        start: int,
        cancel: CancelToken | None = None,
        *,
        num_top: int = 0,
    ) -> ScoreResult:
        logprobs, ranked = [], []
        for index in range(start, len(token_ids)):
            p = self._target.probabilities(list(token_ids[:index]))
            logprobs.append(math.log(p[token_ids[index]]))
            order = sorted(range(VOCAB_SIZE), key=lambda i, p=p: (-p[i], i))  # type: ignore[misc]
            ranked.append(tuple((i, math.log(p[i])) for i in order[: max(1, num_top)]))
        return ScoreResult(
            start,
            tuple(logprobs),
            tuple(row[0][0] for row in ranked),
            tuple(row[0][1] for row in ranked),
            tuple(row[:num_top] for row in ranked),
        )

    def drain(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._is_draining = True
            while self._num_running or self._turns:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 0.05))
        return True
