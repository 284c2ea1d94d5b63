"""How a switch is shown, wherever it is shown."""

from __future__ import annotations

from html import escape
from typing import get_args

from specpilot_console.markup import Markup, badge, facts, note, steps
from specpilot_service.schemas.admin import GateResult, SwitchState, SwitchView

__all__ = ["ENDED", "stations", "switch_html"]

_ROAD: tuple[SwitchState, ...] = (
    "pending",
    "draining",
    "starting",
    "canary",
    "gating",
    "promoting",
    "applied",
)
ENDED: frozenset[SwitchState] = frozenset({"applied", "rolled_back", "cancelled", "failed"})


def stations(view: SwitchView) -> list[str]:
    """The states of this switch in order: those it was in, then those that lie ahead of it."""
    seen: list[str] = [step.state for step in view.steps]
    passed = list(dict.fromkeys([*seen, view.state]))
    if view.state in ENDED or view.state == "rolling_back":
        return passed
    ahead = _ROAD[_ROAD.index(view.state) + 1 :]
    # Draining belongs to recreate, the canary to switches that have a share.
    skipped = set() if view.mode == "recreate" else {"draining"}
    skipped |= set() if view.canary_share is not None else {"canary"}
    return [*passed, *(state for state in ahead if state not in skipped)]


def switch_html(view: SwitchView) -> Markup:
    tone = "good" if view.state == "applied" else "bad" if view.state in get_args(SwitchState)[7:] else "busy"
    seen = [step.state for step in view.steps]
    parts = [steps(stations(view), seen, view.state, tone)]
    rows: list[tuple[str, str]] = [
        ("Switch", f"{view.id}, {view.mode}"),
        ("Profile", view.profile_name),
        ("Revisions", f"{view.from_revision or 'none'} to {view.to_revision}"),
        ("Canary share", "none" if view.canary_share is None else f"{view.canary_share:.0%}"),
        ("By", f"{view.actor}: {view.reason}"),
    ]
    if view.num_tries > 1:
        rows.append(("Tries", str(view.num_tries)))
    last = view.steps[-1] if view.steps else None
    if last is not None:
        rows.append(("Since", f"{last.at:%H:%M:%S} UTC {last.message}"))
    parts.append(facts([*rows, *_checks(view.gates)]))
    if view.error and tone == "bad":
        parts.append(note(view.error, "bad"))
    elif view.error:  # a try that goes on, or has succeeded, after others
        parts.append(note(f"The try before: {view.error}"))
    return Markup("".join(parts))


def _checks(gates: list[GateResult]) -> list[tuple[str, Markup]]:
    return [
        (f"Check: {gate.name}", Markup(f"{badge(gate.verdict)} {escape(gate.message)}")) for gate in gates
    ]
