"""What token forcing asks of a scorer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specpilot.forcing.answer import Answer
from specpilot.forcing.scores import TokenScores

__all__ = ["Scorer", "ScorerDescription", "hash_tokenizer"]


@dataclass(frozen=True)
class ScorerDescription:
    """Who scored.

    Attributes
    ----------
    head
        ``fp32``, or ``unknown`` where a server does not tell.
    vocab_size, eos_ids, tokenizer
        None or empty where a server does not tell; ``tokenizer`` as :func:`hash_tokenizer` gives it.
    """

    name: str
    model: str
    head: str
    vocab_size: int | None = None
    eos_ids: tuple[int, ...] = ()
    tokenizer: str | None = None
    context_length: int | None = None


class Scorer(Protocol):
    """The stock target, teacher-forced. ForcingError for whatever cannot be scored."""

    def describe(self) -> ScorerDescription: ...

    def score(self, answers: Sequence[Answer], on_scored: Callable[[int], None] = ...) -> list[TokenScores]:
        """Scores of each answer's output tokens, in order; ``on_scored`` is told their number as they come."""
        ...

    def rescore(self, ids: Sequence[int], index: int) -> tuple[int, float]:
        """(argmax id, margin of ``ids[index]``), from a prefill of all ``ids``, whose length may move both."""
        ...

    def continue_greedily(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        """What stock decodes after ``ids``: at most so many tokens."""
        ...


def hash_tokenizer(vocab_size: int, token_bytes: Callable[[int], bytes]) -> str:
    """SHA-256 over what every token id adds to a text."""
    digest = hashlib.sha256()
    for token_id in range(vocab_size):
        data = token_bytes(token_id)
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()
