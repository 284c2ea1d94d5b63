"""The limits of token forcing, fixed before an audit begins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specpilot.errors import ConfigError

__all__ = ["DELTA_STEP", "MAX_STOCK_EVENTS", "MAX_STOCK_RATE", "Rules", "delta_from_margins"]

MAX_STOCK_RATE = 0.05
"""Share of stock's tokens that may mismatch: seven times what the paper measured of stock on a GPU (0.72%, section 3.3)
and above the worst stock that the false rejection rate was simulated with (2%). Beyond it stock and scorer are not one
model, and a comparison with stock would accept anything."""

MAX_STOCK_EVENTS = 0.005
"""Large-margin events a token of stock: more than twice the worst simulated (one in 500). Margins above 2 delta are no
rounding, so more of them say that stock, or the scorer, is wrong."""

_MAX_DELTA = 2.0
# Nats: an event then takes a token 55 times less likely than the argmax. The paper's are 0.25 to 0.5; calibration that
# comes to more than this has found a stock that is wrong, not a near-tie.

_BOUNDS: dict[str, tuple[float, float]] = {
    # A limit of 5 points passes a fault in every 20th token; a level near 0 rejects nothing, one near 1 everything.
    "rate_limit": (1e-6, 0.05),
    "rate_level": (0.001, 0.1),
    "event_level": (0.001, 0.1),
}
_INT_BOUNDS: dict[str, tuple[int, int]] = {
    # The event level decides what is the least (``fewest_requests``).
    "min_requests": (2, 1_000_000),
    # The least that shows a fault in every tenth token.
    "min_tokens": (250, 1_000_000_000),
    # Audits look at enough requests however few events are asked for.
    "max_audited": (1, 1_000_000),
    # Levels are divided by it.
    "num_looks": (1, 20),
    "context_tokens": (1, 4096),
}

DELTA_STEP = 1 / 8
"""The near-tie threshold is a multiple of this (the paper, section 3.3)."""


def delta_from_margins(margins: Mapping[str, float] | list[float] | tuple[float, ...]) -> float:
    """Near-tie threshold from the margins, in nats, of stock's first departures from plain decoding.

    The largest one rounded up to a multiple of 1/8; at least 1/8, for without departures every rounding difference
    would else be a large event.
    """
    values = list(margins.values()) if isinstance(margins, Mapping) else list(margins)
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise ConfigError(f"margins: got {values}, expected finite numbers of 0 or more")
    return max(DELTA_STEP, math.ceil(max(values, default=0.0) / DELTA_STEP) * DELTA_STEP)


@dataclass(frozen=True)
class Rules:
    """When a system is rejected. ``specpilot/forcing/DESIGN.md`` says which parts the paper states.

    Attributes
    ----------
    delta
        Near-tie threshold, nats; a mismatch with a margin above twice that is a large-margin event.
    rate_limit
        Share of tokens by which the mismatch rate may exceed stock's.
    rate_level
        Level of the rate rule's one-sided bound.
    event_level
        Level of the event rule's test.
    max_audited
        Large-margin events that are all audited, if there are so many, requests in a seeded order; after them only
        until it is known whether a request has an unexplained one. At least ``fewest_requests`` are looked at.
    min_requests, min_tokens
        Fewer say too little for a verdict: the audit is unavailable. ``min_requests`` is at least
        :attr:`fewest_requests`.
    num_looks
        Looks planned at growing data; both levels are divided by it (Bonferroni). An audit of complete data has one.
    context_tokens
        Tokens of context kept with an event.
    """

    delta: float = 0.25
    rate_limit: float = 0.005
    rate_level: float = 0.03
    event_level: float = 0.02
    max_audited: int = 200
    min_requests: int = 8
    min_tokens: int = 2_000
    num_looks: int = 1
    context_tokens: int = 16

    def __post_init__(self) -> None:
        steps = self.delta / DELTA_STEP
        if not (math.isfinite(steps) and steps >= 1 and steps == round(steps)):
            raise ConfigError(f"delta: got {self.delta}, expected a positive multiple of 1/8")
        if self.delta > _MAX_DELTA:
            raise ConfigError(f"delta: got {self.delta} nats, expected at most {_MAX_DELTA}")
        for name, (low, high) in (_BOUNDS | _INT_BOUNDS).items():
            value = getattr(self, name)
            is_kind = isinstance(value, int if name in _INT_BOUNDS else (int, float))
            if isinstance(value, bool) or not is_kind or not low <= value <= high:
                kind = "a whole number" if name in _INT_BOUNDS else "a number"
                raise ConfigError(f"{name}: got {value!r}, expected {kind} from {low} to {high}")
        if self.min_requests < self.fewest_requests:
            raise ConfigError(
                f"min_requests: got {self.min_requests}, expected at least {self.fewest_requests}"
            )

    @property
    def large_margin(self) -> float:
        """Nats above which a mismatch is a large-margin event."""
        return 2 * self.delta

    @property
    def fewest_requests(self) -> int:
        """Requests that must all have an unexplained event for the event rule to reject, stock having none over as many
        tokens: 6 at a level of 0.02. An audit of fewer accepts whatever it finds."""
        return math.floor(math.log(self.event_level) / math.log(0.5)) + 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
