"""The engines that run now, and which of them new requests go to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from specpilot.errors import EngineError
from specpilot_service.schemas.admin import CrashRecord, EngineStatus, ResolvedView
from specpilot_service.sidecar.engines.engine import LocalEngine, ManagedEngine
from specpilot_service.sidecar.errors import SidecarError
from specpilot_service.sidecar.events import EventBus
from specpilot_service.sidecar.gateway.router import Router
from specpilot_service.sidecar.metrics import SidecarMetrics
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.store import StateStore

__all__ = ["Fleet", "shutting_down"]

log = logging.getLogger(__name__)


def shutting_down() -> SidecarError:
    return SidecarError(503, "shutting_down", "This server takes no new requests now.", retry_after_s=5.0)


class Fleet:
    """Belongs to the event loop. At most two engines: the stable one, and the candidate of a switch.

    Attributes
    ----------
    hold_reason
        While it is set, new requests wait whatever engines there are.
    is_draining
        No new requests are taken and ``/readyz`` says 503.
    on_down
        Called when an engine that was ready is not any more, without anybody having stopped it.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        store: StateStore,
        router: Router,
        bus: EventBus,
        metrics: SidecarMetrics,
    ) -> None:
        self.settings, self.store, self.router, self.bus, self.metrics = settings, store, router, bus, metrics
        self.engines: list[ManagedEngine] = []
        self.hold_reason = ""
        self.is_draining = False
        self.is_restarting = False
        self.why_empty = "no profile has been applied yet"
        self.on_down: Callable[[ManagedEngine, str], None] = lambda engine, why: None
        self._writes: set[asyncio.Task[None]] = set()

    @property
    def stable(self) -> ManagedEngine | None:
        return next((engine for engine in self.engines if engine.role == "stable"), None)

    def make_local(self, revision: int, resolved: ResolvedView) -> LocalEngine:
        return LocalEngine(
            self.settings, self, revision, resolved, on_restart=self.metrics.engine_restarts.inc
        )

    def add(self, engine: ManagedEngine) -> None:
        self.engines.append(engine)
        self.reroute()

    async def remove(self, engine: ManagedEngine) -> None:
        """Stop it; its requests have ended or are cut."""
        await engine.stop()
        if engine in self.engines:
            self.engines.remove(engine)
        self.reroute()

    async def restart(self) -> None:
        """The stable engine again: requests are held, its streams finish, a new process of the same revision."""
        old = self.stable
        assert isinstance(old, LocalEngine)
        self.is_restarting, self.hold_reason = True, "the engine is being restarted"
        self.reroute()
        try:
            await self.finish(old, "the engine is being restarted")
            await self.remove(old)
            again = self._successor(old)
            try:
                await again.start()
            except EngineError as error:
                log.error("restart: %s", error)
                again.keep_trying()
        finally:
            self.is_restarting, self.hold_reason = False, ""
            self.reroute()

    async def restore(self, old: LocalEngine) -> str | None:
        """Start what an engine that is gone served, as the stable one; None, or what went wrong."""
        try:
            await self._successor(old).start()
        except EngineError as error:
            return str(error)
        return None

    def _successor(self, old: LocalEngine) -> LocalEngine:
        """A process of the same revision, not started, in the stable engine's place."""
        assert old.revision is not None
        again = self.make_local(old.revision, old.resolved)
        again.role, again.share = "stable", 1.0
        self.add(again)
        return again

    async def stop_all(self) -> None:
        await asyncio.gather(*(engine.stop() for engine in self.engines))
        await self.settle()

    async def finish(self, engine: ManagedEngine, why: str) -> None:
        """Let the engine's open requests end within ``drain_timeout_s``; the others are cut."""
        if engine.upstream is None:
            return
        error = SidecarError(503, "shutting_down", f"The answer was cut: {why}.", retry_after_s=1.0)
        num_cut = await engine.upstream.finish(self.settings.drain_timeout_s, error)
        if num_cut:
            log.warning("engine %s: cut %d requests at the drain timeout: %s", engine.id, num_cut, why)

    def reroute(self) -> None:
        """Make the router's view that of the engines."""
        shares = {
            engine.upstream: engine.share
            for engine in self.engines
            if engine.upstream is not None and engine.share > 0
        }
        coming = [
            engine
            for engine in self.engines
            if engine.state in ("starting", "backing_off") and engine.share > 0
        ]
        if self.hold_reason:
            self.router.hold(self.hold_reason)
        elif shares:
            self.router.route(shares)
        elif coming:
            self.router.hold(f"the engine is {coming[0].state.replace('_', ' ')}")
        else:
            failed = [engine for engine in self.engines if engine.state == "failed" and engine.share > 0]
            self.router.refuse(failed[0].detail if failed else self.why_empty)
        self.bus.publish("engine", self.status().model_dump(mode="json"))

    def drain(self) -> None:
        self.is_draining, self.router.is_closed_by = True, shutting_down()

    def resume(self) -> None:
        self.is_draining, self.router.is_closed_by = False, None

    def why_not_ready(self) -> str:
        """Empty when a request that comes now is served now."""
        if self.is_draining:
            return "draining"
        if self.router.routed:
            is_open = [upstream.breaker.state != "closed" for upstream in self.router.routed]
            return "the engine failed several times in a row" if all(is_open) else ""
        return self.router.why_no_engine

    def status(self) -> EngineStatus:
        kind = "local" if self.settings.engine_url is None else "url"
        return EngineStatus(
            kind=kind,  # type: ignore[arg-type]
            is_draining=self.is_draining,
            instances=[engine.view() for engine in self.engines],
        )

    # What engines tell (EngineListener)

    def engine_changed(self, engine: ManagedEngine) -> None:
        if engine in self.engines:
            self.reroute()

    def engine_crashed(self, engine: ManagedEngine, crash: CrashRecord) -> None:
        log.error("engine %s of revision %s: %s", engine.id, engine.revision, crash.message)
        writing = asyncio.ensure_future(self.store.call(self.store.crashes.add, crash))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)
        self.on_down(engine, crash.message)

    async def settle(self) -> None:
        """Wait until everything that was reported is stored."""
        await asyncio.gather(*self._writes, return_exceptions=True)
