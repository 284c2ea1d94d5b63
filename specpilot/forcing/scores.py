"""Teacher-forced scores of one answer, and the counts an arm of an audit comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.errors import ForcingError

__all__ = ["ROUNDING", "ArmCounts", "TokenScores", "check_argmax_ids"]

ROUNDING = 1e-6
"""Nats: a token that is the argmax may have a log-probability that JSON rounded to the other side of the argmax's."""


@dataclass(frozen=True)
class TokenScores:
    """One answer's tokens under the scorer.

    Attributes
    ----------
    logprobs, argmax_logprobs
        float64 (n,), natural log: of the token, and of the most likely token in its place.
    argmax_ids
        int64 (n,).
    """

    logprobs: NDArray[np.float64]
    argmax_ids: NDArray[np.int64]
    argmax_logprobs: NDArray[np.float64]

    @property
    def margins(self) -> NDArray[np.float64]:
        """log p(argmax) - log p(token), nats, at least 0."""
        return np.maximum(self.argmax_logprobs - self.logprobs, 0.0)

    def mismatches(self, output_ids: Sequence[int]) -> NDArray[np.bool_]:
        """Where the token is not the argmax."""
        return np.asarray(self.argmax_ids != np.asarray(output_ids))

    def check(self, num_tokens: int, name: str, vocab_size: int | None) -> None:
        """ForcingError for scores that are none; ``vocab_size`` None where the scorer does not tell it."""
        for values in (self.logprobs, self.argmax_ids, self.argmax_logprobs):
            if values.shape != (num_tokens,):
                raise ForcingError(
                    f"{name}: got scores of {values.shape} tokens, expected {num_tokens}; log-probabilities are missing"
                )
        finite = np.isfinite(self.logprobs) & np.isfinite(self.argmax_logprobs)
        if not finite.all():
            raise ForcingError(
                f"{name}: got a log-probability that is NaN or infinite at token {int((~finite).argmax())}, expected "
                "finite numbers"
            )
        if (self.logprobs > ROUNDING).any() or (self.logprobs > self.argmax_logprobs + ROUNDING).any():
            raise ForcingError(f"{name}: got a token likelier than certainty or than the most likely token")
        if (self.argmax_logprobs > ROUNDING).any():
            raise ForcingError(f"{name}: got a most likely token that is likelier than certainty")
        check_argmax_ids(self.argmax_ids, name, vocab_size)


def check_argmax_ids(argmax_ids: NDArray[np.int64], name: str, vocab_size: int | None) -> None:
    """ForcingError for an id that the scorer's vocabulary does not have."""
    wrong = (argmax_ids < 0) | (vocab_size is not None and argmax_ids >= vocab_size)
    if wrong.any():
        raise ForcingError(
            f"{name}: got token id {int(argmax_ids[wrong][0])} as the most likely one, expected 0 to "
            f"{'?' if vocab_size is None else vocab_size - 1}, the scorer's vocabulary"
        )


@dataclass(frozen=True)
class ArmCounts:
    """Mismatches of one system by request.

    Attributes
    ----------
    request_ids
        In the order of the arrays.
    tokens, mismatches, large
        int64 (R,): tokens, those that are not the argmax, and those of them with a large margin.
    """

    request_ids: tuple[str, ...]
    tokens: NDArray[np.int64]
    mismatches: NDArray[np.int64]
    large: NDArray[np.int64]

    @property
    def num_requests(self) -> int:
        return len(self.request_ids)

    @property
    def num_tokens(self) -> int:
        return int(self.tokens.sum())

    @property
    def rate(self) -> float:
        """Mismatches over tokens."""
        return float(self.mismatches.sum() / self.tokens.sum())

    def take(self, rows: NDArray[np.int64], name: str = "") -> ArmCounts:
        """Requests by number, with repeats; their ids are ``name`` and the place they stand in."""
        return ArmCounts(
            tuple(f"{name}{i}" for i in range(len(rows))),
            self.tokens[rows],
            self.mismatches[rows],
            self.large[rows],
        )
