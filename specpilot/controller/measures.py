"""What a controller measures with; an operator puts it together, agents choose none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specpilot.controller.clock import Clock
from specpilot.controller.measure import Measured
from specpilot.controller.slots.base import Slot
from specpilot.controller.trial import TrialPlan
from specpilot.errors import RequestError

__all__ = ["Audit", "Judgement", "Measures"]


@dataclass(frozen=True)
class Judgement:
    """Of token forcing: ``passed`` None is unavailable, which is not passed."""

    passed: bool | None
    reasons: tuple[str, ...]
    report: Mapping[str, Any]


Audit = Callable[[Sequence[Measured], Sequence[Measured], int], Judgement]
"""(candidate's answers, stock's, most tokens of an answer) -> judgement."""


@dataclass(frozen=True)
class Measures:
    """What a controller measures with; agents choose none of it.

    Attributes
    ----------
    development, hidden, sealed
        Plans over disjoint requests: what agents see; what decides besides; what only the final uses.
    environment
        Called before each command: what must not change during a round.
    max_noise_age_s
        A noise estimate that is older is stale.
    """

    slots: tuple[Slot, ...]
    development: TrialPlan
    hidden: TrialPlan
    sealed: TrialPlan
    audit: Audit
    clock: Clock
    environment: Callable[[], Mapping[str, str]]
    end_of_thinking_id: int | None = None
    num_null_trials: int = 8
    max_noise_age_s: float = 24 * 3600.0

    def __post_init__(self) -> None:
        sets = [{one.key for one in plan.prompts} for plan in (self.development, self.hidden, self.sealed)]
        if sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2]:
            raise RequestError(
                "requests: development, hidden and sealed sets share requests, expected none in common"
            )

    @property
    def mode(self) -> str:
        return "one slot, ABBA in time" if len(self.slots) == 1 else "two slots, swapped"

    @property
    def is_isolated(self) -> bool:
        return all(slot.is_isolated for slot in self.slots)
