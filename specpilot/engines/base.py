"""The contract every engine fulfils: token ids in, token ids and per-step records out.

The reference engine (``specpilot.refengine``) and the SGLang client implement it; the service, the bench and token
forcing know nothing else. One call of ``generate`` is one request; an engine decides how many run at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from specpilot.errors import RequestError

GREEDY_BELOW = 1e-5
"""Temperatures below this mean greedy decoding."""

FinishReason = Literal["stop", "length", "cancelled"]
NumericMode = Literal["judge", "serve"]

__all__ = [
    "GREEDY_BELOW",
    "CancelToken",
    "Chunk",
    "Engine",
    "EngineDescription",
    "EngineHealth",
    "FinishReason",
    "GenerateRequest",
    "NumericMode",
    "SamplingParams",
    "ScoreResult",
    "StepRecord",
    "TokenLogprob",
]


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen and when a request ends.

    Attributes
    ----------
    max_new_tokens
        Upper bound of generated tokens, >= 1.
    temperature
        0 is greedy, and so is anything below ``GREEDY_BELOW``, where the division would overflow; otherwise logits
        are divided by it before the softmax. 0 <= temperature <= 2.
    top_p
        Nucleus mass kept after the temperature, 0 < top_p <= 1. Ties at the border are broken by token id.
    seed
        Seeds this request's own generator; the same seed and prompt give the same answer in judge mode.
    stop
        Strings that end the answer, at most 16; they are not part of it. They match across token borders.
    ignore_eos
        Go on past end-of-text (measuring only).
    top_logprobs
        None: no log-probabilities. k >= 0: the chosen token's and those of the k most likely tokens, 0 <= k <= 20.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        def refuse(name: str, got: object, expected: str) -> None:
            raise RequestError(f"{name}: got {got!r}, expected {expected}", param=name)

        if (
            isinstance(self.max_new_tokens, bool)
            or not isinstance(self.max_new_tokens, int)
            or self.max_new_tokens < 1
        ):
            refuse("max_tokens", self.max_new_tokens, "an integer >= 1")
        if not 0.0 <= self.temperature <= 2.0:
            refuse("temperature", self.temperature, "a number between 0 and 2")
        if not 0.0 < self.top_p <= 1.0:
            refuse("top_p", self.top_p, "a number above 0 and at most 1")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            refuse("seed", self.seed, "a signed 64-bit integer")
        if len(self.stop) > 16 or any(not text for text in self.stop):
            refuse("stop", self.stop, "at most 16 non-empty strings")
        if self.top_logprobs is not None and not 0 <= self.top_logprobs <= 20:
            refuse("top_logprobs", self.top_logprobs, "an integer between 0 and 20")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True)
class GenerateRequest:
    """One answer to produce.

    Attributes
    ----------
    prompt_ids
        Token ids, at least one; prompt and answer together must fit the context length.
    drafter
        Name of the drafter to speculate with, ``None`` for plain (autoregressive) decoding. An unknown name is a
        RequestError, never a silent fallback.
    """

    prompt_ids: Sequence[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    drafter: str | None = None
    request_id: str = ""


@dataclass(frozen=True)
class StepRecord:
    """What one verify step did (plain decoding: one row, nothing drafted).

    Attributes
    ----------
    num_drafted
        Draft tokens put before the target in this step (root excluded).
    num_correct_drafts
        Drafts accepted, bonus excluded. ``tau = mean(num_correct_drafts) + 1``.
    bonus_id
        Token the target added at the end of the step.
    draft_us, verify_us, total_us
        Wall clock of the drafter's part, the target's part and the whole step, microseconds.
    """

    num_drafted: int
    num_correct_drafts: int
    bonus_id: int
    draft_us: float
    verify_us: float
    total_us: float


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of one emitted token under the target, with the most likely alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Chunk:
    """What one step adds to the answer.

    ``text`` is the part of the decoded answer that is final: bytes of an unfinished UTF-8 character and a possible
    beginning of a stop string are held back until they are decided. The last chunk of an answer, and only it, has
    ``finish_reason`` set. After a stop string ``token_ids`` still lists every generated token; ``text`` ends before
    the stop string.
    """

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    step: StepRecord | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class ScoreResult:
    """Teacher-forced scores of ``token_ids[start:]``.

    Attributes
    ----------
    logprobs
        log p(token_ids[i] | token_ids[:i]) for i in range(start, len), natural log.
    argmax_ids
        The target's most likely token at the same positions (lowest id on a tie).
    argmax_logprobs
        Its log-probability; margin = argmax_logprobs - logprobs.
    """

    start: int
    logprobs: tuple[float, ...]
    argmax_ids: tuple[int, ...]
    argmax_logprobs: tuple[float, ...]


@dataclass(frozen=True)
class EngineDescription:
    """What runs here; every field is reported, nothing is assumed."""

    engine: str
    model_id: str
    architecture: str
    numeric_mode: NumericMode
    context_length: int
    vocab_size: int
    eos_ids: tuple[int, ...]
    drafters: tuple[str, ...]
    default_drafter: str | None
    device: str
    dtype: str
    num_threads: int


@dataclass(frozen=True)
class EngineHealth:
    is_ready: bool
    is_draining: bool
    num_running: int
    num_waiting: int
    detail: str = ""


class CancelToken:
    """Set once from any thread; the engine looks at it before every prefill chunk and every step."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()


@runtime_checkable
class Engine(Protocol):
    """Thread rule: every method may be called from any thread; an iterator is used by one thread at a time."""

    def describe(self) -> EngineDescription: ...

    def health(self) -> EngineHealth: ...

    def tokenize(self, text: str) -> list[int]:
        """Token ids of plain text, special tokens in the text not interpreted."""
        ...

    def detokenize(self, token_ids: Sequence[int]) -> str: ...

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Prompt ids of a chat (roles system, user, assistant), ending where the assistant's answer begins."""
        ...

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        """Yield the answer step by step.

        The request is checked before the iterator is returned: RequestError for what the caller can mend,
        Overloaded when the waiting room is full or the engine drains. Closing the iterator cancels the request.
        """
        ...

    def score(self, token_ids: Sequence[int], start: int, cancel: CancelToken | None = None) -> ScoreResult:
        """Teacher-forced scores; raises Cancelled if ``cancel`` was set before they were complete."""
        ...

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, wait for running ones; True if all ended in time."""
        ...
