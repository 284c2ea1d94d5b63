"""Large-margin events, and the event rule: are unexplained ones more frequent than stock's?

One event in an answer makes others likelier (a wrong state goes on being wrong), so a request counts once: the test
asks in how many requests an unexplained event fell, with the tokens looked at as exposure. Given x of the system's
requests and s of stock's, x ~ Bin(x + s, E_x / (E_x + E_s)) if both have the same rate. Stock's events all count,
explained or not: what explains an event is stock itself, so nothing would be left to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specpilot.forcing.answer import Answer
from specpilot.forcing.scores import TokenScores
from specpilot.forcing.statistics import binomial_tail

__all__ = ["Event", "EventTest", "audit_order", "event_test", "find_events"]


@dataclass(frozen=True)
class Event:
    """A token of an answer with a large margin.

    Attributes
    ----------
    index
        Place in the answer, 0 the first token.
    margin
        Nats.
    context_ids
        The last tokens before it, prompt included.
    explanation
        None: not audited. ``unexplained``, ``stock path``, ``stock repeats it`` or ``prefill length``.
    evidence
        What was tried and what came of it.
    """

    request_id: str
    index: int
    token_id: int
    argmax_id: int
    margin: float
    context_ids: tuple[int, ...]
    explanation: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def is_unexplained(self) -> bool:
        return self.explanation == "unexplained"


@dataclass(frozen=True)
class EventTest:
    """Requests with an unexplained event (stock: with any), tokens looked at, and the chance of as many or more.

    ``reject_at`` is the smallest number of requests that would be rejected, given stock's.
    """

    num_system: int
    num_stock: int
    system_tokens: int
    stock_tokens: int
    p_value: float
    level: float
    reject_at: int

    @property
    def is_rejected(self) -> bool:
        return self.p_value < self.level


def find_events(answer: Answer, scores: TokenScores, large_margin: float, num_context: int) -> list[Event]:
    """Mismatches of an answer with a margin above ``large_margin``, in their order."""
    is_large = scores.mismatches(answer.output_ids) & (scores.margins > large_margin)
    ids, first = [*answer.prompt_ids, *answer.output_ids], len(answer.prompt_ids)
    return [
        Event(
            answer.request_id,
            index,
            int(answer.output_ids[index]),
            int(scores.argmax_ids[index]),
            float(scores.margins[index]),
            tuple(ids[max(0, first + index - num_context) : first + index]),
        )
        for index in np.flatnonzero(is_large).tolist()
    ]


def audit_order(counts: Sequence[int], least: int, seed: int, fewest: int = 1) -> list[int]:
    """Numbers of the requests to audit: all of them in a random order, cut where ``least`` events are reached.

    Whole requests, with and without events, so that the tokens looked at are a fair exposure; ``fewest`` of them at
    least, for one request with all those events would be one request against stock's many.
    """
    order: list[int] = np.random.default_rng(seed).permutation(len(counts)).tolist()
    reached = np.cumsum([counts[row] for row in order])
    last = int(np.searchsorted(reached, least)) + 1
    return order[: max(last, fewest)]


def event_test(
    num_system: int, num_stock: int, system_tokens: int, stock_tokens: int, level: float
) -> EventTest:
    """The exact conditional binomial test, one-sided."""
    share = system_tokens / (system_tokens + stock_tokens)

    def tail(count: int) -> float:
        return binomial_tail(count, count + num_stock, share)

    reject_at = num_system if tail(num_system) < level else num_system + 1
    while reject_at > 0 and tail(reject_at - 1) < level:
        reject_at -= 1
    while tail(reject_at) >= level:
        reject_at += 1
    return EventTest(num_system, num_stock, system_tokens, stock_tokens, tail(num_system), level, reject_at)
