"""The near-tie threshold of a deployment: how large were the margins where stock first left plain decoding?"""

from __future__ import annotations

from collections.abc import Sequence

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.departures import common_length
from specpilot.forcing.scorers.base import Scorer

__all__ = ["first_departures"]


def first_departures(plain: Sequence[Answer], stock: Sequence[Answer], scorer: Scorer) -> dict[str, float]:
    """Margin of stock's token, in nats, at the first place where its answer leaves plain decoding's, by request id.

    Equal answers are left out. :func:`specpilot.forcing.delta_from_margins` makes the threshold of it.
    """
    paths = {answer.request_id: answer for answer in plain}
    found = {}
    for answer in stock:
        other = paths.get(answer.request_id)
        if other is None or list(other.prompt_ids) != list(answer.prompt_ids):
            raise ForcingError(
                f"request {answer.request_id!r}: plain decoding did not answer the same prompt"
            )
        at = common_length(other.output_ids, answer.output_ids)
        if at < min(len(other.output_ids), len(answer.output_ids)):
            place = len(answer.prompt_ids) + at
            _, margin = scorer.rescore([*answer.prompt_ids, *answer.output_ids[: at + 1]], place)
            found[answer.request_id] = margin
    return found
