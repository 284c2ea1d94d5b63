"""What a sidecar does first: finish what an earlier one left, and start the engine of the current revision."""

from __future__ import annotations

import asyncio
import logging

from specpilot.errors import SpecPilotError
from specpilot_service.schemas.admin import SwitchState, SwitchView
from specpilot_service.sidecar.catalogue import Catalogue
from specpilot_service.sidecar.engines.process import end_leftovers
from specpilot_service.sidecar.engines.url_engine import UrlEngine
from specpilot_service.sidecar.fleet import Fleet
from specpilot_service.sidecar.switching import Switching

__all__ = ["boot"]

log = logging.getLogger(__name__)


async def boot(fleet: Fleet, switching: Switching, catalogue: Catalogue) -> None:
    """Returns when the engine is ready, or when it is clear that none becomes ready; never raises for an engine."""
    store, settings = fleet.store, fleet.settings
    ended = await asyncio.to_thread(end_leftovers, settings.state)
    if ended:
        log.warning("ended %d processes that an earlier sidecar left: %s", len(ended), ended)
    if settings.engine_url is not None:
        engine = UrlEngine(settings, fleet)
        engine.role, engine.share = "stable", 1.0
        fleet.add(engine)
        await engine.start()
        return
    left = await store.call(store.switches.open)
    if left is not None and left.state != "promoting":
        await _move(fleet, left, "rolling_back", f"the sidecar ended in the state {left.state}")
        await store.call(store.revisions.reject, left.to_revision)
    current = await store.call(store.revisions.current)
    if current is None:
        if left is not None:
            await _move(fleet, left, "rolled_back", "no revision was applied before")
        await _first_start(fleet, switching, catalogue)
        return
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


async def _first_start(fleet: Fleet, switching: Switching, catalogue: Catalogue) -> None:
    name = fleet.settings.profile
    if name is None:
        log.warning("no profile has been applied yet and none is named: waiting for a switch")
        return
    try:
        resolved = await asyncio.to_thread(catalogue.admit, name)
        await switching.begin(resolved, actor="sidecar", reason=f"first start with --profile {name}")
    except SpecPilotError as error:
        log.error("profile %s: %s", name, error)
        fleet.why_empty = str(error)
        fleet.reroute()
        return
    await switching.settle()


async def _move(
    fleet: Fleet, switch: SwitchView, state: SwitchState, message: str, error: str | None = None
) -> None:
    await fleet.store.call(fleet.store.switches.move, switch.id, state, message, error=error)
    view = await fleet.store.call(fleet.store.switches.get, switch.id)
    assert view is not None
    fleet.metrics.show_switch(state)
    fleet.bus.publish("switch", view.model_dump(mode="json"))
