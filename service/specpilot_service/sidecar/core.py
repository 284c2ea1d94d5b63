"""Everything one sidecar consists of, made in one place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from typing import Any

from specpilot_service.schemas.admin_access import AuditEntry, KeyCreate, KeyCreated, KeyView
from specpilot_service.sidecar.access import KeyRing, hash_secret, make_secret
from specpilot_service.sidecar.boot import boot, retry_first_start
from specpilot_service.sidecar.catalogue import Catalogue
from specpilot_service.sidecar.engines.engine import LocalEngine
from specpilot_service.sidecar.errors import SidecarError, conflict, not_found
from specpilot_service.sidecar.events import EventBus
from specpilot_service.sidecar.fleet import Fleet, shutting_down
from specpilot_service.sidecar.gates import Gate, JobGate
from specpilot_service.sidecar.gateway.app import Gateway
from specpilot_service.sidecar.gateway.router import Router
from specpilot_service.sidecar.jobs import JOB_KINDS, JobKind
from specpilot_service.sidecar.jobs.runner import JobRunner
from specpilot_service.sidecar.metrics import SidecarMetrics
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.store import StateStore
from specpilot_service.sidecar.switching import Switching
from specpilot_service.sidecar.tracing import make_tracing
from specpilot_service.sidecar.traffic import TrafficMeter

__all__ = ["ADMIN_KEY_FILE", "Sidecar"]

log = logging.getLogger(__name__)

ADMIN_KEY_FILE = "admin.key"
_FLUSH_EVERY_S = 1.0


class Sidecar:
    """Made on the event loop that it lives on.

    Parameters
    ----------
    kinds
        Kinds of jobs by name.
    gates
        Checks of a switch by name; jobs of the kinds that ``settings.gates`` names by default.

    Raises
    ------
    ConfigError
        The settings name a kind of job that there is not.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        store: StateStore,
        catalogue: Catalogue,
        kinds: Mapping[str, JobKind] = JOB_KINDS,
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        self.settings, self.store, self.catalogue = settings, store, catalogue
        self.bus, self.metrics, self.router = EventBus(), SidecarMetrics(), Router(settings.max_queued)
        self.fleet = Fleet(settings, store, self.router, self.bus, self.metrics)
        self.jobs = JobRunner(self.fleet, kinds)
        if gates is None:
            gates = {name: JobGate(self.jobs, name) for name in settings.gates}
        self.tracing = make_tracing(settings.otlp_endpoint)
        self.switching = Switching(self.fleet, gates, self.tracing)
        self.key_ring = KeyRing(store.keys.all())
        self.gateway = Gateway(
            *(settings, self.router, self.key_ring, store.usage, self.metrics, self.fleet.why_not_ready),
            tracing=self.tracing,
        )
        self.traffic = TrafficMeter(self.fleet, self.metrics, self.bus)
        self.has_booted = False
        self._tasks: set[asyncio.Task[Any]] = set()
        loop = asyncio.get_running_loop()

        def listen(entry: AuditEntry) -> None:
            loop.call_soon_threadsafe(self._tell_audit, entry)

        store.audit_log.listen(listen)
        self.metrics.in_flight.set_function(lambda: len(self.gateway.flights) - self.router.num_waiting)
        self.metrics.waiting.set_function(lambda: self.router.num_waiting)
        self.metrics.is_ready.set_function(lambda: int(not self.fleet.why_not_ready()))
        self.metrics.breaker_open.set_function(
            lambda: int(any(upstream.breaker.state != "closed" for upstream in self.router.routed))
        )

    def _tell_audit(self, entry: AuditEntry) -> None:
        self.bus.publish("audit", entry.model_dump(mode="json"))

    def spawn(self, work: Any) -> None:
        """Run beside; kept until it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the sidecar failed", exc_info=error)

    async def start(self) -> None:
        """Returns at once; the engine starts beside."""
        await self._make_first_key()
        self.spawn(self.jobs.run())
        self.spawn(self._boot())
        self.spawn(self.traffic.run())
        self.spawn(self._flush())

    async def _boot(self) -> None:
        tried = await boot(self.fleet, self.switching, self.catalogue)
        self.has_booted = True
        if tried is not None:
            await retry_first_start(self.fleet, self.switching, tried)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_EVERY_S)
            await self._flush_once()
            for engine in self.fleet.engines:
                if isinstance(engine, LocalEngine):
                    await asyncio.to_thread(engine.bound_log)

    async def _flush_once(self) -> None:
        used, self.key_ring.last_used = self.key_ring.last_used, {}
        await self.store.call(self.store.usage.flush)
        if used:
            await self.store.call(self.store.keys.touch, used)

    # Keys

    async def _make_first_key(self) -> None:
        """An admin key in a file of mode 0600, if the store has no admin key in force."""
        if any("admin" in view.scopes and view.revoked_at is None for view, _ in self.store.keys.all()):
            return
        request = KeyCreate(name="first admin", scopes=["admin", "inference"])
        created = await self.create_key(request, "sidecar")
        path = self.settings.state / ADMIN_KEY_FILE
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(created.secret + "\n")
        log.info("the first admin key is in %s", path)

    async def create_key(self, request: KeyCreate, actor: str) -> KeyCreated:
        key_id, secret = make_secret()
        digest = hash_secret(secret)
        view = await self.store.call(self.store.keys.add, key_id, digest, request, actor)
        self.key_ring.put(view, digest)
        return KeyCreated(**view.model_dump(), secret=secret)

    async def revoke_key(self, key_id: str, actor: str) -> KeyView:
        """Revoked from now on; its open requests are cut. 404 for an unknown key, 409 for the last admin key."""
        keys = [view for view, _ in await self.store.call(self.store.keys.all)]
        admins = [view.id for view in keys if "admin" in view.scopes and view.revoked_at is None]
        if admins == [key_id]:
            raise conflict(f"key {key_id}: it is the last admin key; make another one first")
        view = await self.store.call(self.store.keys.revoke, key_id, actor)
        if view is None:
            raise not_found(f"key: got {key_id!r}, expected a known id")
        self.key_ring.revoke(key_id)
        error = SidecarError(401, "revoked_key", "The answer was cut because its key was revoked.")
        self.gateway.cut_key(key_id, error)
        return view

    # The end

    async def drain(self) -> bool:
        """Not ready, then no new requests, then finish the open ones; True if none was cut."""
        self.fleet.is_draining = True  # /readyz says 503 from now on, and requests are still taken
        await asyncio.sleep(self.settings.drain_delay_s)
        self.fleet.drain()
        await self.switching.abandon()
        num_cut = 0
        deadline = asyncio.get_running_loop().time() + self.settings.drain_timeout_s
        while self.gateway.flights and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        for flight in list(self.gateway.flights):
            flight.cut(shutting_down())
            num_cut += 1
        while self.gateway.flights and asyncio.get_running_loop().time() < deadline + 5.0:
            await asyncio.sleep(0.02)
        return num_cut == 0

    async def stop(self) -> None:
        """Stop the engines and write what is left to write; the store is closed."""
        self.bus.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.switching.abandon()
        await self.fleet.stop_all()
        await self._flush_once()
        await asyncio.to_thread(self.tracing.close)
        self.store.close()
