"""The limits of token forcing, fixed before an audit begins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specpilot.errors import ConfigError

__all__ = ["DELTA_STEP", "Rules", "delta_from_margins"]

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
    rate_level: float = 0.05
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
        for name in ("rate_limit", "rate_level", "event_level"):
            if not 0 < getattr(self, name) < 0.5:
                raise ConfigError(f"{name}: got {getattr(self, name)}, expected a number between 0 and 0.5")
        for name, least in (
            ("min_requests", self.fewest_requests),
            ("min_tokens", 1),
            ("max_audited", 1),
            ("num_looks", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: got {getattr(self, name)}, expected at least {least}")

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
