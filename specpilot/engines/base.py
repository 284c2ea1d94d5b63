"""The contract every engine fulfils: token ids in, token ids and per-step records out.

The reference engine (``specpilot.refengine``) and the SGLang client implement it; the service, the bench and token
forcing know nothing else. One call of ``generate`` is one request; an engine decides how many run at once. In judge
mode a request's tokens do not depend on the others that run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from specpilot.engines.mechanisms import STOCK, Mechanisms
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

    The order in which these act is fixed: penalties, bias, grammar, then for sampling temperature, top-k, top-p, min-p
    (``specpilot.sampling.chooser``). With speculation every verified position is treated as if the tokens before it
    had been emitted one by one.

    Attributes
    ----------
    max_new_tokens
        Upper bound of generated tokens, >= 1.
    temperature
        0 is greedy, and so is anything below ``GREEDY_BELOW``, where the division would overflow; otherwise logits
        are divided by it before the softmax. 0 <= temperature <= 2.
    top_k
        Keep the k most likely tokens, ties by token id; 0 keeps all.
    top_p
        Nucleus mass kept of what top-k left, 0 < top_p <= 1. Ties at the border are broken by token id.
    min_p
        Drop tokens less likely than ``min_p`` times the most likely one, 0 <= min_p <= 1.
    repetition_penalty
        Logits of tokens that occur in the prompt or the answer are divided by it where positive and multiplied by
        it where negative, 0 < repetition_penalty <= 2; 1 changes nothing.
    frequency_penalty, presence_penalty
        Subtracted from a token's logit, times its count in the answer and once if it occurs there; the prompt does
        not count. Between -2 and 2.
    logit_bias
        Token id to what is added to its logit, between -100 and 100.
    json_schema
        JSON text of a JSON Schema (an object) the answer must follow; None leaves it free.
    seed
        Seeds this request's own generator; the same seed and prompt give the same answer in judge mode.
    stop
        Strings that end the answer, at most 16; they are not part of it. They match across token borders.
    ignore_eos
        Go on past end-of-text (measuring only).
    top_logprobs
        None: no log-probabilities. k >= 0: the chosen token's and those of the k most likely tokens, 0 <= k <= 20.
        They are the model's own, before everything above.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    json_schema: str | None = None

    def __post_init__(self) -> None:
        def check(is_right: bool, name: str, got: object, expected: str) -> None:
            if not is_right:
                raise RequestError(f"{name}: got {got!r}, expected {expected}", param=name)

        def is_count(value: object, least: int) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and value >= least

        check(is_count(self.max_new_tokens, 1), "max_tokens", self.max_new_tokens, "an integer >= 1")
        check(0.0 <= self.temperature <= 2.0, "temperature", self.temperature, "a number between 0 and 2")
        check(is_count(self.top_k, 0), "top_k", self.top_k, "an integer >= 1, or 0 for all tokens")
        check(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "a number above 0 and at most 1")
        check(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "a number between 0 and 1")
        penalty = self.repetition_penalty
        check(0.0 < penalty <= 2.0, "repetition_penalty", penalty, "a number above 0 and at most 2")
        for name in ("frequency_penalty", "presence_penalty"):
            penalty = getattr(self, name)
            check(-2.0 <= penalty <= 2.0, name, penalty, "a number between -2 and 2")
        for token_id, bias in self.logit_bias.items():
            check(is_count(token_id, 0), "logit_bias", token_id, "token ids >= 0 as keys")
            check(-100.0 <= bias <= 100.0, "logit_bias", bias, "numbers between -100 and 100")
        is_seed = self.seed is None or -(2**63) <= self.seed < 2**63
        check(is_seed, "seed", self.seed, "a signed 64-bit integer")
        check(len(self.stop) <= 16 and all(self.stop), "stop", self.stop, "at most 16 non-empty strings")
        is_top = self.top_logprobs is None or 0 <= self.top_logprobs <= 20
        check(is_top, "top_logprobs", self.top_logprobs, "an integer between 0 and 20")
        if self.json_schema is not None and self.ignore_eos:
            raise RequestError(
                "ignore_eos: got true with a JSON schema, whose answers end with end-of-text; leave one out",
                param="ignore_eos",
            )

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1.0, 0.0, 0.0)


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
    mechanisms
        How it speculates. What an engine cannot keep for a request is refused: Unsupported.
    fallback
        Why the mechanisms are not those that were asked for first; stands in every step record. Who turns a refusal
        into stock decoding says so here.
    """

    prompt_ids: Sequence[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    drafter: str | None = None
    request_id: str = ""
    mechanisms: Mechanisms = STOCK
    fallback: str = ""


@dataclass(frozen=True)
class StepRecord:
    """What one verify step did (plain decoding: one row, nothing drafted).

    Attributes
    ----------
    num_drafted
        Draft tokens put before the target in this step: the nodes of the tree, root excluded.
    num_correct_drafts
        Drafts accepted, bonus excluded. ``tau = mean(num_correct_drafts) + 1``.
    bonus_id
        Token the target added at the end of the step.
    draft_us, verify_us, total_us
        Wall clock of the step's drafting, the target's forward and what follows it, and the whole step, microseconds.
        All requests of a step share them; ``draft_us`` is 0 for one that had nothing drafted.
    num_positions
        Depth of the tree: most drafts that could have been accepted. None: ``num_drafted``, as in a chain.
    mechanism
        What the step did: ``plain`` (nothing drafted), or the builder whose rows it verified.
    fallback
        Why the request does not speculate as it was asked to; empty when it does.
    num_q_rows, q_us
        Rows of the Q pass and its wall clock in microseconds; 0 in a step without one.
    """

    num_drafted: int
    num_correct_drafts: int
    bonus_id: int
    draft_us: float
    verify_us: float
    total_us: float
    num_positions: int | None = None
    mechanism: str = "chain"
    fallback: str = ""
    num_q_rows: int = 0
    q_us: float = 0.0

    @property
    def num_rows(self) -> int:
        """N: rows of the exact pass, root included."""
        return self.num_drafted + 1

    @property
    def depth(self) -> int:
        """Most drafts that could have been accepted."""
        return self.num_drafted if self.num_positions is None else self.num_positions


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of one emitted token with the most likely alternatives.

    Under the target's own distribution: no temperature, penalty, bias, grammar or truncation.
    """

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
    top
        The ``num_top`` most likely tokens of each position as (id, log-probability), most likely first.
    """

    start: int
    logprobs: tuple[float, ...]
    argmax_ids: tuple[int, ...]
    argmax_logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...] = ()


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
    """Set once from any thread; the engine looks at it before every step, of which a prompt takes several."""

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

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to the answer's UTF-8; nothing for special tokens."""
        ...

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Prompt ids of a chat (roles system, user, assistant), ending where the assistant's answer begins."""
        ...

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        """Yield the answer step by step.

        The request is checked before the iterator is returned: RequestError for what the caller can mend or what
        can never fit into the engine's memory, Overloaded when the waiting room is full or the engine drains. It runs
        from then on, a bounded number of steps ahead of its reader. Closing the iterator cancels the request; after
        ``cancel`` was set the next chunk says so, and chunks that were not read are dropped. What fails in a request
        is raised here and ends no other: EngineError, unless it is another error of ``specpilot.errors``.
        """
        ...

    def score(
        self,
        token_ids: Sequence[int],
        start: int,
        cancel: CancelToken | None = None,
        *,
        num_top: int = 0,
    ) -> ScoreResult:
        """Teacher-forced scores; raises Cancelled if ``cancel`` was set before they were complete.

        ``num_top`` alternatives of each position are given, 0 to 20.
        """
        ...

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, wait for running ones; True if all ended in time."""
        ...
