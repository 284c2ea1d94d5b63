"""An engine that somebody else runs: it is probed, never started or stopped."""

from __future__ import annotations

import asyncio

from specpilot.errors import EngineError
from specpilot_service.sidecar.engines.engine import EngineListener, ManagedEngine
from specpilot_service.sidecar.engines.probe import decode_one_token, fetch
from specpilot_service.sidecar.settings import SidecarSettings

__all__ = ["UrlEngine"]

_EVERY_S = 1.0
_MAX_MISSED = 3


class UrlEngine(ManagedEngine):
    """``start`` returns at once; the engine becomes ready when it has decoded a token, whenever that is.

    Without one within ``startup_budget_s`` it has failed meanwhile: requests do not wait for it then. It is asked on.
    """

    def __init__(self, settings: SidecarSettings, listener: EngineListener) -> None:
        super().__init__(settings, listener, None)
        assert settings.engine_url is not None
        place = settings.engine_url.removeprefix("http://").rstrip("/")
        self._host, _, port = place.rpartition(":") if ":" in place else (place, ":", "80")
        self._port = int(port)
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.set_state("starting", "waiting for its first token")
        self._watching = asyncio.create_task(self._watch())

    async def _first_token(self) -> list[dict[str, object]]:
        budget_s = self.settings.startup_budget_s
        try:
            async with asyncio.timeout(budget_s):
                return await self._ask_again_and_again()
        except TimeoutError:
            why = f"decoded no token within its start-up budget of {budget_s:g} s (--startup-budget-s)"
            self.set_state("failed", f"{why}, and is still asked; {self.detail}")
        return await self._ask_again_and_again()

    async def _ask_again_and_again(self) -> list[dict[str, object]]:
        while True:
            try:
                return await decode_one_token(self._host, self._port, self.settings.engine_timeout_s)
            except EngineError as error:
                if self.state == "starting":
                    self.detail = str(error)
                await asyncio.sleep(_EVERY_S)

    async def _watch(self) -> None:
        while True:
            cards = await self._first_token()
            self.become_ready(self._host, self._port, cards)
            num_missed = 0
            while num_missed < _MAX_MISSED:
                await asyncio.sleep(_EVERY_S)
                try:
                    await fetch(self._host, self._port, "GET", "/v1/models")
                    num_missed = 0
                except EngineError as error:
                    num_missed += 1
                    self.detail = str(error)
            self.set_state("starting", f"it does not answer: {self.detail}")

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self.set_state("stopped")
