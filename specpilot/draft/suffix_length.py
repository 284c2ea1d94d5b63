"""How many drafts pay: what a request has shown about its matches so far, against the cost of verifying more rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["AcceptEstimate", "best_length"]

# Shortest match of each class, and the share of right predictions to start with: near the middle of what the bundled
# target's answers show, open ones and copied ones. A wrong start costs a few steps; the request's own text corrects it.
_CLASSES = (1, 2, 3, 4, 5, 8, 16)
_PRIOR = (0.2, 0.4, 0.5, 0.65, 0.75, 0.85, 0.97)
_PRIOR_WEIGHT = 4.0


class AcceptEstimate:
    """Share of right predictions by match length, learned from one request's own text.

    A prediction that only a share of the earlier places agree on counts as that share of one.
    """

    def __init__(self) -> None:
        self._right = [_PRIOR_WEIGHT * share for share in _PRIOR]
        self._weight = [_PRIOR_WEIGHT] * len(_PRIOR)

    def copy(self) -> AcceptEstimate:
        """One that goes on learning on its own."""
        twin = AcceptEstimate()
        twin._right, twin._weight = self._right.copy(), self._weight.copy()
        return twin

    def rate(self, match_length: int, agreement: float) -> float:
        """Expected share of right predictions after a match of ``match_length`` >= 1 tokens, 0 < agreement <= 1."""
        index = bisect_right(_CLASSES, match_length) - 1
        return min(1.0, self._right[index] / self._weight[index]) * agreement

    def learn(self, match_length: int, agreement: float, is_right: bool) -> None:
        index = bisect_right(_CLASSES, match_length) - 1
        self._right[index] += is_right
        self._weight[index] += agreement


def best_length(rates: Sequence[float], row_cost: float) -> int:
    """The number of drafts with the most committed tokens for the time of a step.

    Parameters
    ----------
    rates
        Chance of each draft to be right when all before it are.
    row_cost
        Time of one more row in the target, as a share of a step with one row.
    """
    best, best_yield = 0, 1.0
    reached = committed = 1.0
    for count, rate in enumerate(rates, start=1):
        reached *= rate
        committed += reached
        if committed / (1.0 + row_cost * count) > best_yield:
            best, best_yield = count, committed / (1.0 + row_cost * count)
    return best
