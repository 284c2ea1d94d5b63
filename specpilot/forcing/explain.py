"""The audit of an event: does stock do the same, or is the scorer itself undecided there?

An event is explained if one of these holds, and all that was tried is kept as evidence:

- *stock path*: stock's own answer to the request has the same tokens up to and with this one;
- *stock repeats it*: stock, asked to go on from the text before it (or from a few tokens earlier), writes it;
- *stock margin*: from a prefill of another length the margin is no large one;
- *prefill length*: from a prefill of another length the scorer's argmax is another token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from specpilot.errors import ForcingError, SpecPilotError
from specpilot.forcing.answer import Answer
from specpilot.forcing.events import Event
from specpilot.forcing.scorers.base import Scorer
from specpilot.forcing.scores import ROUNDING, check_argmax_ids

__all__ = ["EARLIER", "LONGER", "explain_event"]

EARLIER = (0, 1, 8)
"""Tokens before the event from which stock is asked to go on."""

LONGER = (1, 9, 65)
"""Tokens that a prefill holds from the event on; all that follow is the scoring itself."""


def explain_event(
    event: Event, answer: Answer, stock: Answer | None, scorer: Scorer, large_margin: float
) -> Event:
    """The event with its explanation and evidence; ForcingError if the scorer fails."""
    try:
        return _explain(event, answer, stock, scorer, large_margin)
    except ForcingError:
        raise
    except SpecPilotError as error:
        raise ForcingError(
            f"event at token {event.index} of {event.request_id!r} cannot be audited: {error}"
        ) from error


def _explain(
    event: Event, answer: Answer, stock: Answer | None, scorer: Scorer, large_margin: float
) -> Event:
    outputs = list(answer.output_ids)
    ids, place = [*answer.prompt_ids, *outputs], len(answer.prompt_ids) + event.index
    evidence: dict[str, Any] = {}
    if stock is not None and list(stock.prompt_ids) == list(answer.prompt_ids):
        evidence["on_stock_path"] = list(stock.output_ids[: event.index + 1]) == outputs[: event.index + 1]
        if evidence["on_stock_path"]:
            return replace(event, explanation="stock path", evidence=evidence)
    found = None
    evidence["stock_continues"] = {}
    for earlier in EARLIER:
        begin = place - earlier
        if begin < len(answer.prompt_ids):
            break
        written = scorer.continue_greedily(ids[:begin], earlier + 1)
        evidence["stock_continues"][str(earlier)] = written
        if written == ids[begin : place + 1]:
            found = "stock repeats it"
            break
    evidence["prefill"] = {}
    for more in LONGER:
        if place + more > len(ids):
            break
        argmax, margin = scorer.rescore(ids[: place + more], place)
        _check_rescored(argmax, margin, event, scorer.describe().vocab_size)
        evidence["prefill"][str(place + more)] = [argmax, round(margin, 6)]
        if found is None and margin <= large_margin:
            found = "stock margin"
        if found is None and argmax != event.argmax_id:
            found = "prefill length"
    return replace(event, explanation=found or "unexplained", evidence=evidence)


def _check_rescored(argmax: int, margin: float, event: Event, vocab_size: int | None) -> None:
    name = f"event at token {event.index} of {event.request_id!r}"
    check_argmax_ids(np.array([argmax]), name, vocab_size)
    if not (math.isfinite(margin) and margin > -ROUNDING):
        raise ForcingError(f"{name}: got a margin of {margin} nats, expected a finite one of 0 or more")
