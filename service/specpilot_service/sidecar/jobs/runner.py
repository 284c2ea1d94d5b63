"""Runs jobs: one at a time, at the lowest priority, paused while requests wait for a place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specpilot.errors import ConfigError, SpecPilotError
from specpilot_service.schemas.admin_jobs import JobKindView, JobOrigin, JobProgress, JobState, JobView
from specpilot_service.sidecar.engines.engine import LocalEngine, ManagedEngine
from specpilot_service.sidecar.errors import SidecarError, conflict, not_found, unavailable
from specpilot_service.sidecar.fleet import Fleet
from specpilot_service.sidecar.gateway.router import Upstream
from specpilot_service.sidecar.jobs.kinds import JobKind, JobPlace
from specpilot_service.sidecar.jobs.process import JobFailed, JobProcess, read_result
from specpilot_service.sidecar.store.database import utc_now
from specpilot_service.sidecar.store.jobs import cancel_message

__all__ = ["JobRunner"]

log = logging.getLogger(__name__)

_TICK_S = 0.05
_IDLE_TICK_S = 1.0
_RESUME_AFTER_S = 0.5  # of no request waiting: a queue that empties for a moment is still one
_SHOW_EVERY_S = 0.25
_STORE_EVERY_S = 1.0
_NUM_FOLDERS = 20
_MAX_PUT_BACK = 3
_END_STATES = frozenset({"succeeded", "failed", "cancelled"})


class _PutBack(SpecPilotError):
    """The running job makes room, and starts again later."""


@dataclass
class _Running:
    """The job that runs now."""

    job_id: str
    is_gate: bool
    engine: ManagedEngine | None
    revision: int | None
    upstream: Upstream | None
    cancelled_by: tuple[str, str] | None = None  # who, why
    progress: JobProgress | None = None
    is_paused: bool = False
    has_to_yield: bool = False
    shown_at_s: float = 0.0
    stored_at_s: float = field(default_factory=time.monotonic)


class JobRunner:
    """Belongs to the event loop.

    Jobs that gate a switch come first: one that runs for another reason is put back for them. They are not paused and
    run at nice 10, because the switch waits for them.
    """

    def __init__(self, fleet: Fleet, kinds: Mapping[str, JobKind]) -> None:
        self._fleet, self._store, self.kinds = fleet, fleet.store, dict(kinds)
        self._settings = fleet.settings
        unknown = sorted({*self._settings.job_schedule, *self._settings.gates} - set(self.kinds))
        if unknown:
            raise ConfigError(
                f"gates, job_schedule: got {', '.join(unknown)}, expected: {', '.join(self.kinds)}"
            )
        self._running: _Running | None = None
        self._gated: dict[str, ManagedEngine] = {}
        self._ended: dict[str, asyncio.Future[None]] = {}
        self._num_put_back: dict[str, int] = {}
        self._news = asyncio.Event()
        fleet.metrics.job_running.set_function(lambda: int(self._running is not None))

    # What operators and switches ask

    def kind_views(self) -> list[JobKindView]:
        schedule = self._settings.job_schedule
        return [
            JobKindView(name=name, unavailable=kind.unavailable(), every_s=schedule.get(name))
            for name, kind in self.kinds.items()
        ]

    def require(self, name: str) -> JobKind:
        """404 for an unknown kind, 503 for one that cannot run here."""
        kind = self.kinds.get(name)
        if kind is None:
            raise not_found(f"kind: got {name!r}, expected one of: {', '.join(self.kinds)}", param="kind")
        if why := kind.unavailable():
            raise unavailable(f"{name}: {why}")
        return kind

    async def start(self, name: str, options: Mapping[str, Any], *, actor: str, reason: str) -> JobView:
        """Queue a job. 400 for options that its kind does not know."""
        kind = self.require(name)
        try:
            # Asked now, so that a wrong option is an answer and not a failed job.
            kind.command(options, self._place("check", self._fleet.stable))
        except ConfigError as error:
            raise SidecarError(400, "invalid_value", str(error), param="options") from None
        return await self._add(name, options, "operator", actor, reason)

    async def gate(self, name: str, engine: ManagedEngine) -> JobView:
        """Check this engine now; returns the ended job. Cancelling the call cancels the job."""
        options = self.require(name).gate_options()
        job_id = _new_id()
        self._gated[job_id], ended = engine, asyncio.get_running_loop().create_future()
        self._ended[job_id] = ended
        try:
            await self._add(name, options, "gate", "sidecar", "a switch waits for it", job_id)
            if self._running is not None and not self._running.is_gate:
                self._running.has_to_yield = True
            await ended
        except asyncio.CancelledError:
            with contextlib.suppress(SidecarError):
                await asyncio.shield(self.cancel(job_id, "sidecar", "its switch was given up"))
            raise
        finally:
            self._gated.pop(job_id, None)
            self._ended.pop(job_id, None)
        return await self.get(job_id)

    async def cancel(self, job_id: str, actor: str, reason: str) -> JobView:
        """At once for a queued job; a running one ends within seconds. 409 for one that has ended."""
        job = await self.get(job_id)
        if await self._store.call(self._store.jobs.cancel_queued, job_id, actor, reason):
            return await self._tell_end(job.kind, "cancelled", job_id)
        job = await self.get(job_id)
        if job.state != "running" or self._running is None or self._running.job_id != job_id:
            raise conflict(f"job {job_id}: it is {job.state}, expected queued or running")
        self._running.cancelled_by = actor, reason
        return job

    async def get(self, job_id: str) -> JobView:
        job = await self._store.call(self._store.jobs.get, job_id)
        if job is None:
            raise not_found(f"job: got {job_id!r}, expected a known id")
        return self._live(job)

    async def list(self, kind: str | None, limit: int) -> list[JobView]:
        return [self._live(job) for job in await self._store.call(self._store.jobs.all, kind, limit)]

    def folder(self, job_id: str) -> Path:
        return self._settings.state / "jobs" / job_id

    # The runner

    async def run(self) -> None:
        """Until cancelled; a job that runs then has failed."""
        for job_id in await self._store.call(self._store.jobs.end_left):
            log.warning("job %s: an earlier sidecar ended while it ran", job_id)
        while True:
            await self._add_scheduled()
            gates_only = bool(self._fleet.why_not_ready())
            job = await self._store.call(self._store.jobs.next, gates_only=gates_only)
            if job is not None:
                await self._run(job)
                continue
            news = self._news = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_TICK_S):
                    await news.wait()

    async def _add_scheduled(self) -> None:
        for name, every_s in self._settings.job_schedule.items():
            if self.kinds[name].unavailable():
                continue
            last = await self._store.call(self._store.jobs.last, name, origin="schedule")
            is_open = last is not None and last.state not in _END_STATES
            is_early = last is not None and (utc_now() - last.created_at).total_seconds() < every_s
            if not is_open and not is_early:
                await self._add(name, {}, "schedule", "sidecar", f"every {every_s:.0f} s")

    async def _add(
        self,
        name: str,
        options: Mapping[str, Any],
        origin: JobOrigin,
        actor: str,
        reason: str,
        job_id: str | None = None,
    ) -> JobView:
        job_id = job_id or _new_id()
        add = self._store.jobs.add
        await self._store.call(
            lambda: add(job_id, name, origin, options, revision=None, actor=actor, reason=reason)
        )
        self._news.set()
        return await self._show(job_id)

    async def _run(self, job: JobView) -> None:
        engine = self._gated.get(job.id) if job.origin == "gate" else self._fleet.stable
        if job.origin == "gate" and engine is None:  # the switch gave up while the job was queued
            await self._end(job, "cancelled")
            return
        revision, upstream = (None, None) if engine is None else (engine.revision, engine.upstream)
        self._running = running = _Running(job.id, job.origin == "gate", engine, revision, upstream)
        if not await self._store.call(self._store.jobs.begin, job.id, revision):  # cancelled meanwhile
            self._running = None
            return
        await self._show(job.id)
        try:
            result = await self._execute(job, running)
        except _PutBack as why:
            self._num_put_back[job.id] = num = self._num_put_back.get(job.id, 0) + 1
            if num > _MAX_PUT_BACK:
                await self._end(job, "failed", error=f"put back {_MAX_PUT_BACK} times; the last time: {why}")
                return
            await self._store.call(self._store.jobs.put_back, job.id, str(why))
            self._running = None
            await self._show(job.id)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(job, "failed", error="the sidecar was stopped while it ran"))
            raise
        except Exception as error:
            if not isinstance(error, SpecPilotError | OSError):
                log.error("job %s: a defect of its kind or of the sidecar", job.id, exc_info=error)
            if running.cancelled_by is not None:
                actor, reason = running.cancelled_by
                await self._end(job, "cancelled", error=cancel_message(actor, reason), actor=actor)
            else:
                await self._end(job, "failed", error=str(error))
        else:
            await self._end(job, "succeeded", result=result)
        finally:
            self._running = None

    async def _execute(self, job: JobView, running: _Running) -> dict[str, Any]:
        """The result; raises for every other end."""
        place = self._place(job.id, running.engine)
        await asyncio.to_thread(_make_folder, place.folder)
        command = self.kinds[job.kind].command(job.options, place)
        process = await JobProcess.start(
            command,
            state=self._settings.state,
            folder=place.folder,
            priority="low" if running.is_gate else "idle",
        )
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(running, process))
                async for progress in process.progress():
                    await self._note(running, progress)
                await process.wait()
                watching.cancel()
        except ExceptionGroup as failures:
            if running.cancelled_by is None:
                self._require_same_engine(running)  # then its failure is not the job's own
            raise failures.exceptions[0] from None
        finally:
            await asyncio.shield(process.stop())
        self._require_same_engine(running)  # it may have ended between two looks
        return await asyncio.to_thread(read_result, place.result)

    def _require_same_engine(self, running: _Running) -> None:
        """What looked at two engines, or at one that was gone meanwhile, has looked at none. Switches watch theirs."""
        engine, stable = running.engine, self._fleet.stable
        if running.is_gate:
            return
        if engine is not stable or (engine is not None and engine.revision != running.revision):
            raise _PutBack("the engine changed while it ran")
        if engine is not None and engine.upstream is not running.upstream:
            raise _PutBack("the engine went down while it ran")

    async def _watch(self, running: _Running, process: JobProcess) -> None:
        """Pauses and resumes it; raises for what ends it early."""
        run_s, idle_s = 0.0, 0.0
        began_s = before_s = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = time.monotonic()
            passed_s, before_s = now_s - before_s, now_s
            elapsed_s = now_s - began_s
            if elapsed_s > self._settings.job_deadline_s:
                raise JobFailed(
                    f"unavailable: no time on this box: it had {process.processor_s():.1f} s of processor time in "
                    f"{elapsed_s:.0f} s, {elapsed_s - run_s:.0f} s of them paused for requests"
                )
            if running.cancelled_by is not None:
                raise JobFailed("cancelled")
            if running.has_to_yield:
                raise _PutBack("a switch waits for a check of its own")
            self._require_same_engine(running)
            if running.is_paused:
                self._fleet.metrics.job_paused_seconds.inc(passed_s)
                idle_s = 0.0 if self._fleet.router.is_saturated else idle_s + passed_s
                if idle_s >= _RESUME_AFTER_S:
                    process.resume()
                    running.is_paused = False
                    await self._show(running.job_id)
                continue
            run_s += passed_s
            if run_s > self._settings.job_timeout_s:
                raise JobFailed(
                    f"unavailable: it did not end within {self._settings.job_timeout_s:.0f} s of running, in which it "
                    f"had {process.processor_s():.1f} s of processor time"
                )
            if not running.is_gate and self._fleet.router.is_saturated:
                process.pause()
                running.is_paused, idle_s = True, 0.0
                await self._show(running.job_id)

    async def _note(self, running: _Running, progress: JobProgress) -> None:
        running.progress = progress
        now_s = time.monotonic()
        if now_s - running.stored_at_s >= _STORE_EVERY_S:
            running.stored_at_s = now_s
            await self._store.call(self._store.jobs.set_progress, running.job_id, progress)
        if now_s - running.shown_at_s >= _SHOW_EVERY_S:
            running.shown_at_s = now_s
            await self._show(running.job_id)

    async def _end(
        self,
        job: JobView,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
        actor: str = "sidecar",
    ) -> None:
        last = None if self._running is None else self._running.progress

        def store_it() -> None:
            with self._store.database.transaction():
                if last is not None:
                    self._store.jobs.set_progress(job.id, last)
                self._store.jobs.end(job.id, state, result=result, error=error, actor=actor)

        await self._store.call(store_it)
        self._running = None
        if result is not None:
            verdict = {True: "passed", False: "failed", None: "not_checked"}[result["passed"]]
            self._fleet.metrics.show_check(job.kind, verdict)
        await self._tell_end(job.kind, state, job.id)

    async def _tell_end(self, kind: str, state: JobState, job_id: str) -> JobView:
        self._num_put_back.pop(job_id, None)
        self._fleet.metrics.jobs.labels(kind, state).inc()
        ended = self._ended.get(job_id)
        if ended is not None and not ended.done():
            ended.set_result(None)
        return await self._show(job_id)

    async def _show(self, job_id: str) -> JobView:
        view = await self.get(job_id)
        # Results may be large; who wants one asks for the job.
        self._fleet.bus.publish("job", view.model_dump(mode="json", exclude={"result"}) | {"result": None})
        return view

    def _live(self, job: JobView) -> JobView:
        running = self._running
        if job.state == "queued":
            return job.model_copy(update={"waits_for": self._why_queued(job)})
        if running is None or running.job_id != job.id or job.state != "running":
            return job
        return job.model_copy(
            update={"is_paused": running.is_paused, "progress": running.progress or job.progress}
        )

    def _why_queued(self, job: JobView) -> str:
        if self._running is not None:
            return f"the end of {self._running.job_id}; one job at a time"
        if job.origin != "gate" and (why := self._fleet.why_not_ready()):
            return f"an engine that is ready; now: {why}"
        return "its turn"

    def _place(self, job_id: str, engine: ManagedEngine | None) -> JobPlace:
        folder = self.folder(job_id)
        upstream = None if engine is None else engine.upstream
        return JobPlace(
            folder=folder,
            result=folder / "result.json",
            engine_url=None if upstream is None else f"http://{upstream.host}:{upstream.port}",
            resolved=engine.resolved if isinstance(engine, LocalEngine) else None,
        )


def _new_id() -> str:
    return f"job-{secrets.token_hex(5)}"


def _make_folder(folder: Path) -> None:
    """Empty, and the oldest ones beside it are gone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    others = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in others[:-_NUM_FOLDERS]:
        shutil.rmtree(old, ignore_errors=True)
