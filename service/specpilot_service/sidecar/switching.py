"""The switch: a state machine whose every state is stored before it is acted on (DESIGN.md)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping

from specpilot.errors import SpecPilotError
from specpilot_service.schemas.admin import (
    GateResult,
    ResolvedView,
    SwitchMode,
    SwitchState,
    SwitchView,
)
from specpilot_service.sidecar.candidate import Candidate, SwitchFailed
from specpilot_service.sidecar.engines.engine import LocalEngine, ManagedEngine
from specpilot_service.sidecar.errors import SidecarError, conflict
from specpilot_service.sidecar.fleet import Fleet
from specpilot_service.sidecar.gates import Gate
from specpilot_service.sidecar.store.jobs import cancel_message
from specpilot_service.sidecar.switch_modes import InEngineChange, check_in_engine, choose_mode
from specpilot_service.sidecar.tracing import NO_TRACING, Tracing

__all__ = ["Switching"]

log = logging.getLogger(__name__)


class Switching:
    """One switch at a time. Belongs to the event loop; the store's unique index backs the rule."""

    def __init__(self, fleet: Fleet, gates: Mapping[str, Gate], tracing: Tracing = NO_TRACING) -> None:
        self._tracing = tracing
        self._fleet, self._store, self._gates = fleet, fleet.store, gates
        self._running: asyncio.Task[None] | None = None
        self._open_id: str | None = None
        self._state: SwitchState = "applied"
        self._candidate: Candidate | None = None
        self._promoted, self._is_forced = asyncio.Event(), False
        self._cancelled_by: tuple[str, str] | None = None
        self._tell_state: Callable[[str], None] = lambda state: None
        self._beginning = asyncio.Lock()
        fleet.on_down = self._engine_down

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    # What operators ask

    async def begin(
        self,
        resolved: ResolvedView,
        *,
        mode: str = "auto",
        revision: int | None = None,
        canary_share: float | None = None,
        is_promoted_at_once: bool = True,
        actor: str,
        reason: str,
    ) -> SwitchView:
        """Begin a switch to ``resolved``, or to the stored ``revision`` that holds it; returns at once.

        Raises
        ------
        SidecarError
            409 if a switch runs or the mode cannot work here.
        """
        async with self._beginning:
            self._require_free()
            current = await self._store.call(self._store.revisions.current)
            chosen = choose_mode(
                mode, resolved, is_first=self._fleet.stable is None, canary_share=canary_share
            )
            if chosen == "in-engine":
                assert isinstance(self._fleet.stable, LocalEngine)
                await check_in_engine(self._fleet.stable, resolved)
            switch_id = f"sw-{secrets.token_hex(5)}"
            number = await self._store.call(
                self._store.begin_switch,
                *(switch_id, resolved, revision),
                mode=chosen,
                from_revision=None if current is None else current.number,
                canary_share=canary_share,
                is_promoted_at_once=is_promoted_at_once,
                actor=actor,
                reason=reason,
            )
            self._promoted = asyncio.Event()
            if is_promoted_at_once:
                self._promoted.set()
            return await self._launch(switch_id, chosen, number, resolved, canary_share)

    async def try_again(self, tried: SwitchView, resolved: ResolvedView) -> SwitchView:
        """Run the switch of a first start that was rolled back once more, in its own record; returns at once.

        Raises
        ------
        SidecarError
            409 if a switch runs or something is applied meanwhile.
        """
        async with self._beginning:
            self._require_free()
            if self._fleet.stable is not None:
                raise conflict(f"switch {tried.id}: something is applied; it was a first start")

            await self._store.call(self._store.try_switch_again, tried)
            self._promoted.set()
            return await self._launch(tried.id, tried.mode, tried.to_revision, resolved, None)

    def _require_free(self) -> None:
        if self._fleet.settings.engine_url is not None:
            raise conflict("switch: the engine is found by URL; whoever starts it switches it")
        if self._fleet.is_restarting:
            raise conflict("switch: the engine is being restarted; try again when it is ready")
        if self.is_running:
            raise conflict(f"switch: {self._open_id} runs; wait for its end or cancel it")

    async def _launch(
        self, switch_id: str, mode: SwitchMode, number: int, resolved: ResolvedView, share: float | None
    ) -> SwitchView:
        """The stored switch runs from now on."""
        self._open_id, self._cancelled_by, self._is_forced = switch_id, None, False
        self._state = "pending"
        await self._show(switch_id)
        self._running = asyncio.create_task(self._run_traced(switch_id, mode, number, resolved, share))
        return await self.get(switch_id)

    async def get(self, switch_id: str) -> SwitchView:
        view = await self._store.call(self._store.switches.get, switch_id)
        if view is None:
            raise SidecarError(404, "not_found", f"switch: got {switch_id!r}, expected a known id")
        return view

    async def set_share(self, switch_id: str, share: float, actor: str, reason: str) -> SwitchView:
        self._require(switch_id, "canary")
        assert self._candidate is not None
        await self._store.call(self._store.switches.set_share, switch_id, share, actor, reason)
        self._split(self._candidate.engine, share)
        return await self._show(switch_id)

    async def promote(self, switch_id: str, actor: str, reason: str, *, is_forced: bool) -> SwitchView:
        self._require(switch_id, "canary")
        await self._store.call(self._store.switches.note, switch_id, actor, "promote", reason)
        self._is_forced = is_forced
        self._promoted.set()
        return await self.get(switch_id)

    async def cancel(self, switch_id: str, actor: str, reason: str) -> SwitchView:
        self._require(switch_id, "pending", "draining", "starting", "canary", "gating")
        await self._store.call(self._store.switches.note, switch_id, actor, "cancel", reason)
        # Asked again: the switch may have gone on while the store was busy.
        self._require(switch_id, "pending", "draining", "starting", "canary", "gating")
        self._cancelled_by = (actor, reason)
        assert self._running is not None
        self._running.cancel()
        return await self.get(switch_id)

    def _require(self, switch_id: str, *states: SwitchState) -> None:
        is_open = self.is_running and switch_id == self._open_id
        if is_open and self._cancelled_by is not None:
            raise conflict(f"switch {switch_id}: it is already being cancelled, by {self._cancelled_by[0]}")
        if not is_open or self._state not in states:
            now = f"is in the state {self._state}" if is_open else "has ended"
            raise conflict(f"switch {switch_id}: it {now}, expected one of: {', '.join(states)}")

    async def settle(self) -> None:
        """Wait for the running switch, if any."""
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def abandon(self) -> None:
        """The process ends: leave the switch as it is in the store; the next process finishes it."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    # The machine

    async def _move(self, switch_id: str, state: SwitchState, message: str, error: str | None = None) -> None:
        await self._store.call(self._store.switches.move, switch_id, state, message, error=error)
        self._state = state
        self._tell_state(state)
        await self._show(switch_id)

    async def _show(self, switch_id: str) -> SwitchView:
        view = await self.get(switch_id)
        self._fleet.metrics.show_switch(view.state)
        self._fleet.bus.publish("switch", view.model_dump(mode="json"))
        return view

    async def _run_traced(
        self, switch_id: str, mode: SwitchMode, number: int, resolved: ResolvedView, share: float | None
    ) -> None:
        with self._tracing.span("switch", **{"switch.id": switch_id, "switch.mode": mode}) as span:
            span.set_attribute("switch.profile", resolved.name)
            self._tell_state = span.add_event
            await self._run(switch_id, mode, number, resolved, share)
            span.set_attribute("switch.state", self._state)

    async def _run(
        self, switch_id: str, mode: SwitchMode, number: int, resolved: ResolvedView, share: float | None
    ) -> None:
        old = self._fleet.stable
        if mode == "in-engine":
            assert isinstance(old, LocalEngine)
            candidate, change = old, InEngineChange(old, number, resolved)
        else:
            candidate, change = self._fleet.make_local(number, resolved), None
        self._candidate = watched = Candidate(candidate)
        try:
            gates = await self._bring_up(switch_id, mode, old, watched, share, change)
        except (SpecPilotError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if self._cancelled_by is None:
                    if change is None:
                        await candidate.stop()
                    raise
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
            await self._roll_back(switch_id, mode, old, candidate, error, change)
            return
        except Exception as error:
            log.error("switch %s: a defect of the sidecar", switch_id, exc_info=error)
            await self._roll_back(switch_id, mode, old, candidate, error, change)
            return
        await self._promote(switch_id, number, old, candidate, gates, change)

    async def _bring_up(
        self,
        switch_id: str,
        mode: SwitchMode,
        old: ManagedEngine | None,
        watched: Candidate,
        share: float | None,
        change: InEngineChange | None,
    ) -> list[GateResult]:
        """Everything before the commit point. Raises for whatever must end in a rollback."""
        fleet, candidate = self._fleet, watched.engine
        if change is not None:
            await self._move(
                switch_id, "starting", "the engine changes; ready is one token decoded the new way"
            )
            await watched.or_down(change.make())
            fleet.reroute()
            return await self._gate(switch_id, watched, None)
        if mode == "recreate":
            if old is not None:
                await self._move(
                    switch_id, "draining", "requests are held; the old engine finishes its streams"
                )
                fleet.hold_reason = "the profile is being switched"
                fleet.reroute()
                await fleet.finish(old, "the profile was switched")
                await fleet.remove(old)
            else:
                fleet.hold_reason = "the first engine is being started"
                fleet.reroute()
        await self._move(switch_id, "starting", "the new engine starts; ready is one decoded token")
        candidate.share = 0.0
        fleet.add(candidate)
        await candidate.start()
        if share is not None:
            await self._move(switch_id, "canary", f"the new engine gets {share:.0%} of new requests")
            self._split(candidate, share)
            await watched.or_down(self._promoted.wait())
        if mode == "recreate":
            candidate.share = 1.0
            fleet.hold_reason = ""
            fleet.reroute()
        return await self._gate(switch_id, watched, None if old is None or mode == "recreate" else old)

    async def _gate(
        self, switch_id: str, watched: Candidate, stable: ManagedEngine | None
    ) -> list[GateResult]:
        await self._move(switch_id, "gating", "audit and ceiling")
        checks = (gate.check(watched.engine, stable) for gate in self._gates.values())
        gates = [await watched.or_down(check) for check in checks]
        await self._store.call(self._store.switches.set_gates, switch_id, gates)
        for gate in gates:
            self._fleet.metrics.show_check(gate.name, gate.verdict)
        failed = [f"{gate.name}: {gate.message}" for gate in gates if gate.verdict == "failed"]
        if failed and not self._is_forced:
            raise SwitchFailed("gate failed: " + "; ".join(failed))
        return gates

    async def _promote(
        self,
        switch_id: str,
        number: int,
        old: ManagedEngine | None,
        candidate: LocalEngine,
        gates: list[GateResult],
        change: InEngineChange | None,
    ) -> None:
        self._state = "promoting"
        await asyncio.shield(self._store.call(self._store.commit_switch, switch_id, number, gates))
        fleet = self._fleet
        fleet.metrics.revision.set(number)
        if change is not None:
            await self._show(switch_id)
            left = await change.settle(fleet.settings.drain_timeout_s)
            message = "the engine decodes new requests this way, and none that began before is left"
            if left:
                message = (
                    f"the engine decodes new requests this way; {left} that began before go on as they began"
                )
            await self._move(switch_id, "applied", message)
            return
        candidate.role, candidate.share, fleet.hold_reason = "stable", 1.0, ""
        if old is not None and old in fleet.engines:
            old.role, old.share = "retiring", 0.0
        fleet.reroute()
        await self._show(switch_id)
        if old is not None and old in fleet.engines:
            await fleet.finish(old, "the profile was switched")
            await fleet.remove(old)
        await self._move(switch_id, "applied", "ready, routed, and the old engine is gone")

    async def _roll_back(
        self,
        switch_id: str,
        mode: SwitchMode,
        old: ManagedEngine | None,
        candidate: LocalEngine,
        error: BaseException,
        change: InEngineChange | None,
    ) -> None:
        fleet = self._fleet
        message = str(error)
        if self._cancelled_by is not None:
            message = cancel_message(*self._cancelled_by)
        if change is not None:
            change.forget()  # first: a process that died is started again as it was before
        await self._move(switch_id, "rolling_back", message, error=message)
        state: SwitchState = "rolled_back" if self._cancelled_by is None else "cancelled"
        if change is not None:
            if not await change.undo():
                log.warning("switch %s: the engine does not change back; starting it again", switch_id)
                await fleet.restart()
            fleet.reroute()
            await self._end(switch_id, state, "the revision before it serves", None)
            return
        candidate.share = 0.0
        if mode == "recreate":
            fleet.hold_reason = "the profile is being rolled back"
        elif old is not None:
            old.share = 1.0
        fleet.reroute()
        await fleet.finish(candidate, "the switch was rolled back")
        await fleet.remove(candidate)
        if mode == "recreate" and old is not None:
            assert isinstance(old, LocalEngine)
            came_back = await fleet.restore(old)
            if came_back is not None:
                fleet.hold_reason = ""
                fleet.why_empty = f"the rollback failed: {came_back}"
                fleet.reroute()
                await self._end(switch_id, "failed", "the old engine did not come back", came_back)
                return
        fleet.hold_reason = ""
        fleet.why_empty = message
        fleet.reroute()
        await self._end(
            switch_id, state, "the revision before it serves" if old else "no revision serves", None
        )

    async def _end(self, switch_id: str, state: SwitchState, message: str, error: str | None) -> None:
        switch = await self.get(switch_id)
        await self._store.call(self._store.revisions.reject, switch.to_revision)
        await self._move(switch_id, state, message, error)

    def _split(self, candidate: ManagedEngine, share: float) -> None:
        candidate.share = share
        if (old := self._fleet.stable) is not None:
            old.share = 1.0 - share
        self._fleet.reroute()

    def _engine_down(self, engine: ManagedEngine, why: str) -> None:
        if self._candidate is not None:
            self._candidate.tell_down(engine, why)
