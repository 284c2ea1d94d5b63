"""What an audit says, as one value and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from specpilot.errors import ConfigError
from specpilot.forcing.events import Event

__all__ = ["VERDICT_VERSION", "Verdict"]

VERDICT_VERSION = 1


@dataclass(frozen=True)
class Verdict:
    """The outcome of one audit.

    Attributes
    ----------
    passed
        None: the audit was unavailable, and ``reasons`` has the cause. Unavailable is not passed.
    reasons
        Why it was rejected or unavailable; empty when it passed.
    counts
        By arm (``system``, ``stock``): requests, tokens, mismatches, large_events; for the system also audited_events
        (all of the audited requests), audited_requests, unexplained_events and unexplained_requests.
    intervals
        ``system`` and ``stock``: rate, low, high (95%); ``difference``: value and one-sided lower bound.
    limits
        The rules, the rate rule's limit, the event test with its p value, and what this audit could have found:
        ``detectable_rate`` (with probability 0.8) and ``detectable_requests`` (requests with an unexplained event).
    events
        Large-margin events of the system, each with its context; audited ones with explanation and evidence.
    scorer
        Who scored.
    accuracy
        Change of task accuracy with its interval, beside the verdict and no part of it; None if not measured.
    notes
        What a reader must know besides, such as a scorer that does not tell its head.
    """

    passed: bool | None
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    intervals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    scorer: Mapping[str, Any] = field(default_factory=dict)
    accuracy: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """A verdict has three values; ask ``passed is True``."""
        raise TypeError("Verdict: ask for passed, which is True, False or None (unavailable)")

    @property
    def word(self) -> str:
        """``accepted``, ``rejected`` or ``unavailable``."""
        return {True: "accepted", False: "rejected", None: "unavailable"}[self.passed]

    @classmethod
    def unavailable(cls, cause: str, **known: Any) -> Verdict:
        return cls(None, (f"audit unavailable: {cause}",), **known)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {"format": "specpilot-verdict", "version": VERDICT_VERSION} | values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """ConfigError for another format or version, or for anything but a verdict."""
        head = (data.get("format"), data.get("version"))
        if head != ("specpilot-verdict", VERDICT_VERSION):
            raise ConfigError(
                f"verdict: got format and version {head}, expected ('specpilot-verdict', {VERDICT_VERSION})"
            )
        values = {name: value for name, value in data.items() if name not in ("format", "version")}
        try:
            events = tuple(
                Event(**{**event, "context_ids": tuple(event["context_ids"])})
                for event in values.pop("events")
            )
            reasons, notes = tuple(values.pop("reasons")), tuple(values.pop("notes"))
            verdict = cls(events=events, reasons=reasons, notes=notes, **values)
        except (TypeError, KeyError) as error:
            raise ConfigError(f"verdict: the document is damaged: {error}") from None
        if not (verdict.passed is None or isinstance(verdict.passed, bool)):
            raise ConfigError(f"verdict, passed: got {verdict.passed!r}, expected true, false or null")
        return verdict
