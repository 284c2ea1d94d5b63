"""Checks between 'the new engine serves' and 'it is promoted'."""

from __future__ import annotations

from typing import Protocol

from specpilot_service.schemas.admin import GateResult
from specpilot_service.sidecar.gateway.router import Upstream
from specpilot_service.sidecar.store.database import utc_now

__all__ = ["MISSING_GATES", "Gate", "MissingGate"]


class Gate(Protocol):
    """A check of a running engine. It raises nothing: what goes wrong is a failed verdict with its message."""

    name: str

    async def check(self, candidate: Upstream, stable: Upstream | None) -> GateResult: ...


class MissingGate:
    """A check that this build does not have. It says so and is recorded as not checked; it never passes."""

    def __init__(self, name: str, message: str) -> None:
        self.name, self._message = name, message

    def result(self) -> GateResult:
        return GateResult(name=self.name, verdict="not_checked", message=self._message, checked_at=utc_now())

    async def check(self, candidate: Upstream, stable: Upstream | None) -> GateResult:
        return self.result()


MISSING_GATES: dict[str, MissingGate] = {
    gate.name: gate
    for gate in (
        MissingGate("audit", "unavailable: this build has no token-forcing audit yet"),
        MissingGate("ceiling", "unavailable: this build has no ceiling check yet"),
    )
}
