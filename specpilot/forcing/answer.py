"""What token forcing reads: one answer of a system, as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer:
    """One output of the system under test, or of stock.

    Attributes
    ----------
    request_id
        Names the request; the unit of clustering. Answers of two systems to one request share it.
    prompt_ids, output_ids
        Token ids; the output has every generated token, end-of-text included.
    finish_reason
        ``stop`` or ``length``; anything else is an answer that did not come to its end.
    max_new_tokens
        What the request allowed: an answer that ends with ``length`` before was cut, and one that ends with ``length``
        cannot be judged without.
    """

    request_id: str
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    finish_reason: str | None
    max_new_tokens: int | None = None
