"""How a round's chance of a false promotion is divided over its attempts.

Whoever may try again until the noise is kind will be promoted: with 80 tries at 2.5% each a null change gets through
in 87% of rounds (computed, 1 - 0.975^80). A round therefore has one budget, 2.5% for *all* its attempts together. Each
direction gets an equal share, and its attempts halve what is left (the last takes the rest), so a first attempt is
judged hardly more strictly than alone and the sum never exceeds the budget, whatever depends on whatever (Bonferroni).

An attempt is spent when its trial begins, in the ledger, before anything is measured: one that was broken off, crashed
or looked bad halfway is spent all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.errors import ConfigError

__all__ = ["AlphaPlan"]


@dataclass(frozen=True)
class AlphaPlan:
    """Fixed when a round opens.

    Attributes
    ----------
    alpha
        One-sided chance that any null change of the round is promoted.
    num_directions, num_attempts
        Most directions, and most attempts of each, retries included.
    """

    alpha: float = 0.025
    num_directions: int = 20
    num_attempts: int = 4

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 0.5 or self.num_directions < 1 or self.num_attempts < 1:
            raise ConfigError(
                f"plan: got {self}, expected 0 < alpha < 0.5 and at least one direction and one attempt"
            )

    def level(self, attempt: int) -> float:
        """The level of attempt ``attempt`` of a direction, counted from 1."""
        if not 1 <= attempt <= self.num_attempts:
            raise ConfigError(
                f"attempt: got number {attempt} of a direction, expected at most {self.num_attempts}"
            )
        halvings = min(attempt, self.num_attempts - 1)
        return self.alpha / self.num_directions / 2.0**halvings
