"""Where two answers part, and how close a call it was."""

from __future__ import annotations

from collections.abc import Sequence

from specpilot.engines.base import Engine

__all__ = ["common_length", "margin"]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens before the two differ."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))


def margin(engine: Engine, context: Sequence[int], token_id: int) -> float:
    """log p(argmax) - log p(token) after the context, in nats, by the engine's teacher-forced scores."""
    score = engine.score([*context, token_id], len(context))
    return score.argmax_logprobs[0] - score.logprobs[0]
