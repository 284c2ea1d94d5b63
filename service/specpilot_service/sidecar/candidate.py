"""The engine that a switch brings up, and word of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from specpilot.errors import SpecPilotError
from specpilot_service.sidecar.engines.engine import LocalEngine, ManagedEngine

__all__ = ["Candidate", "SwitchFailed"]

T = TypeVar("T")


class SwitchFailed(SpecPilotError):
    """A switch cannot go on; the old revision comes back."""


class Candidate:
    """Belongs to the event loop."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self._down: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell_down(self, engine: ManagedEngine, why: str) -> None:
        """Some engine ended; the others of the box do not matter here."""
        if engine is self.engine and not self._down.done():
            self._down.set_result(why)

    async def or_down(self, work: Awaitable[T]) -> T:
        """Await ``work``; SwitchFailed if the engine ends first."""
        working = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {working, self._down}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise SwitchFailed(f"the new engine {self._down.result()}")
        finally:
            working.cancel()
