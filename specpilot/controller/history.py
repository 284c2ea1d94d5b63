"""What the ledger says has happened: a pure fold over its entries, so a restart and a reader see the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from specpilot.controller.ledger import Entry
from specpilot.controller.noise import Noise
from specpilot.controller.slots.base import System
from specpilot.controller.spending import AlphaPlan

__all__ = ["Attempt", "Round", "as_system", "read_round", "system_json"]


@dataclass
class Attempt:
    """One try of one direction. Spent when it begins; ``measured``, ``checked`` and ``decided`` hold what followed."""

    attempt_id: int
    direction: str
    number: int
    alpha: float
    candidate: System
    baseline_id: str
    measured: dict[str, Any] | None = None
    checked: dict[str, Any] | None = None
    decided: dict[str, Any] | None = None


@dataclass
class Round:
    """The round the ledger ends in.

    Attributes
    ----------
    opened
        Detail of ``round.opened``: plan, stock, environment, mode.
    noise, measured_at
        Of the calibration, with its time, ISO 8601.
    control_rates
        Log rates of whole passes of stock at the calibration, shifted by the gain of every promotion since.
    best
        The current best system: stock until something is promoted.
    """

    opened: dict[str, Any]
    plan: AlphaPlan
    stock: System
    best: System
    noise: Noise | None = None
    control_rates: tuple[float, ...] = ()
    measured_at: str = ""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    closed_directions: set[str] = field(default_factory=set)
    is_sealed: bool = False
    final: dict[str, Any] | None = None
    is_closed: bool = False

    @property
    def directions(self) -> list[str]:
        return list(dict.fromkeys(attempt.direction for attempt in self.attempts.values()))

    def num_attempts(self, direction: str) -> int:
        return sum(attempt.direction == direction for attempt in self.attempts.values())


def read_round(entries: Iterable[Entry]) -> Round | None:
    """The last round; None before the first one."""
    current: Round | None = None
    for entry in entries:
        detail = entry.detail
        if entry.kind == "round.opened":
            stock = as_system(detail["stock"])
            current = Round(detail, AlphaPlan(**detail["plan"]), stock, stock)
        elif current is not None:
            _apply(current, entry)
    return current


def _apply(current: Round, entry: Entry) -> None:
    detail = entry.detail
    if entry.kind == "noise.measured":
        current.noise = Noise(tuple(detail["null_gains"]), tuple(detail["null_gaps"]))
        current.control_rates, current.measured_at = tuple(detail["control_rates"]), entry.at
    elif entry.kind == "attempt.begun":
        candidate = as_system(detail["candidate"])
        current.attempts[detail["attempt_id"]] = Attempt(
            detail["attempt_id"],
            detail["direction"],
            detail["number"],
            detail["alpha"],
            candidate,
            detail["baseline_id"],
        )
    elif entry.kind in ("attempt.measured", "attempt.checked", "attempt.decided"):
        attempt = current.attempts[detail["attempt_id"]]
        setattr(attempt, entry.kind.split(".")[1], detail)
        if entry.kind == "attempt.decided" and detail["is_promoted"]:
            current.best = attempt.candidate
            shift = detail["rate_shift"]
            current.control_rates = tuple(rate + shift for rate in current.control_rates)
    elif entry.kind == "direction.closed":
        current.closed_directions.add(detail["direction"])
    elif entry.kind == "seal.begun":
        current.is_sealed = True
    elif entry.kind == "seal.decided":
        current.final = detail
    elif entry.kind == "round.closed":
        current.is_closed = True


def system_json(system: System) -> dict[str, Any]:
    return {
        "name": system.name,
        "arguments": list(system.arguments),
        "tree": system.tree,
        "extra": dict(system.extra),
        "system_id": system.system_id,
    }


def as_system(data: dict[str, Any]) -> System:
    return System(data["name"], tuple(data["arguments"]), data["tree"], data["extra"])
