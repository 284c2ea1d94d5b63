"""What a sidecar does first: finish what an earlier one left, and start the engine of the current revision."""

from __future__ import annotations

import asyncio
import logging

from specpilot.errors import SpecPilotError
from specpilot_service.schemas.admin import SwitchState, SwitchView
from specpilot_service.sidecar.catalogue import Catalogue
from specpilot_service.sidecar.engines.engine import restart_pause_s
from specpilot_service.sidecar.engines.process import end_leftovers
from specpilot_service.sidecar.engines.url_engine import UrlEngine
from specpilot_service.sidecar.errors import SidecarError
from specpilot_service.sidecar.fleet import Fleet
from specpilot_service.sidecar.switching import Switching

__all__ = ["boot", "retry_first_start"]

log = logging.getLogger(__name__)


async def boot(fleet: Fleet, switching: Switching, catalogue: Catalogue) -> SwitchView | None:
    """Returns when the engine is ready, or when its first start has failed; never raises for an engine.

    The switch of a first start that was tried, whatever became of it; None where a revision was applied before, or
    nothing could be started.
    """
    store, settings = fleet.store, fleet.settings
    ended = await asyncio.to_thread(end_leftovers, settings.state)
    if ended:
        log.warning("ended %d processes that an earlier sidecar left: %s", len(ended), ended)
    if settings.engine_url is not None:
        engine = UrlEngine(settings, fleet)
        engine.role, engine.share = "stable", 1.0
        fleet.add(engine)
        await engine.start()
        return None
    left = await store.call(store.switches.open)
    if left is not None and left.state != "promoting":
        cause = f"the sidecar ended in the state {left.state}, before the switch was committed"
        await _move(fleet, left, "rolling_back", cause, cause)
        await store.call(store.revisions.reject, left.to_revision)
    current = await store.call(store.revisions.current)
    if current is None:
        if left is not None:
            await _move(fleet, left, "rolled_back", "no revision was applied before")
        return await _first_start(fleet, switching, catalogue)
    fleet.metrics.revision.set(current.number)
    stable = fleet.make_local(current.number, current.resolved)
    stable.role, stable.share = "stable", 1.0
    fleet.add(stable)
    error = None
    try:
        await stable.start()
    except SpecPilotError as failure:
        error = str(failure)
        stable.keep_trying()
        log.error("revision %d does not start: %s", current.number, failure)
    if left is not None:
        end: SwitchState = "applied" if left.state == "promoting" else "rolled_back"
        message = "finished by the next sidecar: the current revision is ready and nothing else runs"
        await _move(fleet, left, "failed" if error else end, error or message, error)
    return None


async def retry_first_start(fleet: Fleet, switching: Switching, tried: SwitchView) -> None:
    """While nothing is applied, start again what did not come up, with growing pauses and without an end. All tries are
    one switch.

    A box that was busy for its budget is not dead for good, and the admin API stays there for another profile. Not
    tried again: what a gate refused, what somebody cancelled, and anything with ``--max-restarts 0``.
    """
    num_failures = 0
    while (
        fleet.settings.max_restarts
        and tried.state == "rolled_back"
        and all(step.state != "gating" for step in tried.steps)
    ):
        pause_s = restart_pause_s(fleet.settings, num_failures)
        log.error("first start: %s; started again in %.1f s", tried.error, pause_s)
        if not switching.is_running:
            fleet.why_empty = f"{tried.error}; started again in {pause_s:.1f} s"
            fleet.reroute()
        await asyncio.sleep(pause_s)
        await switching.settle()  # somebody may have begun another one
        if fleet.stable is not None:
            return
        if fleet.is_draining:
            continue
        revision = await fleet.store.call(fleet.store.revisions.get, tried.to_revision)
        assert revision is not None
        try:
            await switching.try_again(tried, revision.resolved)
        except SidecarError as error:  # somebody was faster
            log.info("first start: %s", error)
            continue
        fleet.metrics.engine_restarts.inc()
        await switching.settle()
        tried, num_failures = await switching.get(tried.id), num_failures + 1


async def _first_start(fleet: Fleet, switching: Switching, catalogue: Catalogue) -> SwitchView | None:
    name = fleet.settings.profile
    if name is None:
        log.warning("no profile has been applied yet and none is named: waiting for a switch")
        return None
    try:
        resolved = await asyncio.to_thread(catalogue.admit, name)
        begun = await switching.begin(resolved, actor="sidecar", reason=f"first start with --profile {name}")
    except SpecPilotError as error:
        log.error("profile %s: %s", name, error)
        fleet.why_empty = str(error)
        fleet.reroute()
        return None
    await switching.settle()
    return await switching.get(begun.id)


async def _move(
    fleet: Fleet, switch: SwitchView, state: SwitchState, message: str, error: str | None = None
) -> None:
    await fleet.store.call(fleet.store.switches.move, switch.id, state, message, error=error)
    view = await fleet.store.call(fleet.store.switches.get, switch.id)
    assert view is not None
    fleet.metrics.show_switch(state)
    fleet.bus.publish("switch", view.model_dump(mode="json"))
