"""How a switch gets from one profile to another: two engines, one after the other, or the running one changed."""

from __future__ import annotations

import asyncio
import logging

from specpilot.errors import SpecPilotError
from specpilot_service.schemas.admin import ResolvedView, SwitchMode
from specpilot_service.sidecar.engines.control import ask_change, restart_required
from specpilot_service.sidecar.engines.engine import LocalEngine
from specpilot_service.sidecar.errors import conflict
from specpilot_service.sidecar.gateway.router import Flight

__all__ = ["InEngineChange", "check_in_engine", "choose_mode"]

log = logging.getLogger(__name__)

_EVERY_S = 0.05


def choose_mode(
    mode: str, resolved: ResolvedView, *, is_first: bool, canary_share: float | None
) -> SwitchMode:
    """The mode to use. What was asked for and cannot work is refused, never replaced."""
    if mode == "in-engine" and is_first:
        raise restart_required("no engine runs that could change")
    chosen: SwitchMode = "recreate" if is_first else resolved.switch if mode == "auto" else mode  # type: ignore[assignment]
    if mode == "surge" and resolved.switch == "recreate":
        raise conflict(
            f"mode: got surge, but profile {resolved.name} says that no second engine fits; use recreate"
        )
    if canary_share is not None and chosen != "surge":
        raise conflict(
            f"canary_share: needs the mode surge, where two engines run side by side; got {chosen}"
        )
    return chosen


async def check_in_engine(engine: LocalEngine, resolved: ResolvedView) -> None:
    """Ask the engine whether it could; 409 ``restart_required`` if not."""
    try:
        await ask_change(engine, resolved, is_dry_run=True)
    except SpecPilotError as error:
        if hasattr(error, "status"):
            raise
        raise restart_required(str(error)) from error


class InEngineChange:
    """A running engine on its way to another profile, and back. Requests that run finish as they began."""

    def __init__(self, engine: LocalEngine, number: int, resolved: ResolvedView) -> None:
        self._engine, self._number, self._resolved = engine, number, resolved
        self._before = engine.revision, engine.resolved
        self._earlier: set[Flight] = set()

    async def make(self) -> None:
        """Returns when the engine has decoded a token the new way and plans every new request so."""
        await ask_change(self._engine, self._resolved, is_dry_run=False)
        assert self._engine.upstream is not None
        self._earlier = set(self._engine.upstream.flights)
        self._engine.revision, self._engine.resolved = self._number, self._resolved

    def forget(self) -> None:
        """From now on a restart of the process starts the profile of before."""
        self._engine.revision, self._engine.resolved = self._before

    async def undo(self) -> bool:
        """Change back; False if the engine has to be started again for that."""
        engine = self._engine
        if engine.upstream is None:  # it is being started again, as it was before
            return True
        try:
            await ask_change(engine, engine.resolved, is_dry_run=False)
            return True
        except SpecPilotError as error:
            log.error("engine %s: %s", engine.id, error)
            return False

    async def settle(self, timeout_s: float) -> int:
        """Wait for the requests that were open at the change; how many are left at the timeout. None is cut."""

        def left() -> int:
            upstream = self._engine.upstream
            return 0 if upstream is None else len(self._earlier & upstream.flights)

        try:
            async with asyncio.timeout(timeout_s):
                while left():
                    await asyncio.sleep(_EVERY_S)
        except TimeoutError:
            pass
        return left()
