"""Whether the Q pass of two-level verification pays in a request's next step, by what its steps have given lately.

A cycle with a Q pass takes ``cycle_cost`` times a one-level step (a second draft and the pass over the low-precision
copy) and commits more tokens. Running means of the tokens of both kinds of step are kept, in which a step counts for
``_RECENT`` and all before it for the rest. The pass is taken while

    mean tokens with it >= cycle_cost * mean tokens without it

The first ``NUM_TRIALS`` steps of each kind come in turn, so that both means exist, and after ``PATIENCE`` steps of one
kind comes one of the other, so that neither mean grows old. No clock is read and nothing is drawn: the same tokens
give the same decisions.
"""

from __future__ import annotations

from specpilot.errors import ConfigError

__all__ = ["NUM_TRIALS", "PATIENCE", "QGate"]

NUM_TRIALS = 2
PATIENCE = 16
_RECENT = 0.2


class QGate:
    """The gate of one request.

    Parameters
    ----------
    cycle_cost
        Time of a cycle with a Q pass over that of a one-level step, above 0.
    """

    def __init__(self, cycle_cost: float) -> None:
        if not cycle_cost > 0.0:
            raise ConfigError(f"cycle_cost: got {cycle_cost}, expected a number above 0")
        self._cycle_cost = cycle_cost
        self._means: list[float | None] = [None, None]
        self._counts = [0, 0]
        self._run, self._last = 0, False

    def is_open(self) -> bool:
        """Whether the next step takes the pass."""
        without, with_pass = self._counts
        if min(without, with_pass) < NUM_TRIALS:
            return with_pass <= without
        if self._run >= PATIENCE:
            return not self._last
        less, more = self._means
        assert less is not None and more is not None
        return more >= self._cycle_cost * less

    def learn(self, has_q_pass: bool, num_tokens: int) -> None:
        """Take a step in: whether it had the pass, and the tokens it committed."""
        before = self._means[has_q_pass]
        self._means[has_q_pass] = (
            num_tokens if before is None else (1 - _RECENT) * before + _RECENT * num_tokens
        )
        self._counts[has_q_pass] += 1
        self._run = self._run + 1 if has_q_pass == self._last else 1
        self._last = has_q_pass
