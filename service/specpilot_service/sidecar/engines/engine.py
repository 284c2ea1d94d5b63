"""An engine under supervision: a local process that is started again when it ends, or one found by its URL."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from specpilot.errors import EngineError
from specpilot_service.schemas.admin import (
    BreakerState,
    CrashRecord,
    EngineInstance,
    EngineState,
    ResolvedView,
)
from specpilot_service.settings import ENV_PREFIX
from specpilot_service.sidecar.engines.log_files import bound_log, drop_old_logs, keep_log, last_lines
from specpilot_service.sidecar.engines.probe import decode_one_token
from specpilot_service.sidecar.engines.process import EngineProcess
from specpilot_service.sidecar.gateway.breaker import Breaker
from specpilot_service.sidecar.gateway.router import Upstream
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.store.database import utc_now

__all__ = ["PREVIOUS_LOG", "EngineListener", "LocalEngine", "ManagedEngine", "restart_pause_s"]

log = logging.getLogger(__name__)

PREVIOUS_LOG = "previous-crash.log"
_MAX_BACKOFF_S = 60.0
_STOP_TIMEOUT_S = 20.0
_PROBE_EVERY_S = 0.2


def restart_pause_s(settings: SidecarSettings, num_failures: int) -> float:
    """Seconds to wait after so many failures in a row; doubles up to a minute."""
    return min(_MAX_BACKOFF_S, settings.backoff_s * 2.0 ** min(num_failures, 64))


class EngineListener(Protocol):
    """Who is told what happens to engines; called on the event loop."""

    def engine_changed(self, engine: ManagedEngine) -> None: ...

    def engine_crashed(self, engine: ManagedEngine, crash: CrashRecord) -> None: ...


class ManagedEngine:
    """What local engines and those found by URL have in common. ``upstream`` is None unless it is ready."""

    def __init__(self, settings: SidecarSettings, listener: EngineListener, revision: int | None) -> None:
        self.id = secrets.token_hex(4)
        self.settings, self.listener, self.revision = settings, listener, revision
        self.role: Literal["stable", "candidate", "retiring"] = "candidate"
        self.share = 0.0
        self.state: EngineState = "stopped"
        self.detail = ""
        self.upstream: Upstream | None = None
        self.started_at: datetime | None = None
        self.ready_at: datetime | None = None
        self.num_restarts = 0
        self.last_crash: CrashRecord | None = None
        self._models: list[str] = []

    @property
    def pid(self) -> int | None:
        return None

    def set_state(self, state: EngineState, detail: str = "") -> None:
        self.state, self.detail = state, detail
        if state != "ready":
            self.upstream = None
        log.info("engine %s: %s %s", self.id, state, detail)
        self.listener.engine_changed(self)

    def become_ready(self, host: str, port: int, cards: list[dict[str, object]]) -> None:
        breaker = Breaker(self.settings.breaker_failures, self.settings.breaker_cooldown_s)
        self.upstream = Upstream(self.id, host, port, cards, self.settings.max_in_flight, breaker)
        self._models, self.ready_at = list(self.upstream.models), utc_now()
        self.set_state("ready")

    def view(self) -> EngineInstance:
        breaker: BreakerState = "closed" if self.upstream is None else self.upstream.breaker.state
        return EngineInstance(
            id=self.id,
            revision=self.revision,
            role=self.role,
            state=self.state,
            detail=self.detail,
            pid=self.pid,
            started_at=self.started_at,
            ready_at=self.ready_at,
            num_restarts=self.num_restarts,
            models=self._models,
            share=self.share,
            num_in_flight=0 if self.upstream is None else len(self.upstream.flights),
            breaker=breaker,
            last_crash=self.last_crash,
        )

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError


class LocalEngine(ManagedEngine):
    """A process of the sidecar, started from a resolved profile.

    ``resolved`` is what it serves now and what a restart starts; an in-engine switch replaces it. ``start`` returns
    when the engine is ready. From then on a task watches the process and starts it again with growing pauses;
    ``max_restarts`` in a row without becoming ready end in the state ``failed``.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        listener: EngineListener,
        revision: int | None,
        resolved: ResolvedView,
        on_restart: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(settings, listener, revision)
        self.resolved = resolved
        self.control_key = secrets.token_urlsafe(32)
        self._on_restart = on_restart
        self._process: EngineProcess | None = None
        self._watching: asyncio.Task[None] | None = None
        self._num_starts = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        return self._logs / f"engine-{self.id}-{self._num_starts}.log"

    @property
    def _startup_budget_s(self) -> float:
        return self.settings.startup_budget_s or self.resolved.startup_budget_s

    @property
    def _logs(self) -> Path:
        return self.settings.state / "logs"

    async def start(self) -> None:
        """Start the process and wait for its first token.

        Raises
        ------
        EngineError
            It ended, or the start-up budget was over; the process is gone then and its log is kept.
        """
        process = await self._start_once()
        self._watching = asyncio.create_task(self._watch(process))

    async def _start_once(self) -> EngineProcess:
        self._num_starts += 1
        self.started_at = utc_now()
        self.set_state("starting")
        try:
            self._process = process = await EngineProcess.start(
                self.resolved.command,
                {**self.resolved.environment, **self._control()},
                state=self.settings.state,
                log_path=self.log_path,
            )
        except OSError as error:
            self.set_state("failed", str(error))
            raise EngineError(f"engine {self.id}: the process could not be made: {error}") from error
        drop_old_logs(self._logs)
        ending = asyncio.ensure_future(process.wait())
        probing = asyncio.ensure_future(self._probe(process.port))
        try:
            done, _ = await asyncio.wait(
                {ending, probing},
                timeout=self._startup_budget_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if probing in done:
                self.become_ready("127.0.0.1", process.port, probing.result())
                return process
        except asyncio.CancelledError:
            await process.stop(1.0)
            self.set_state("stopped", "its start was called off")
            raise
        finally:
            ending.cancel()
            probing.cancel()
            await asyncio.gather(ending, probing, return_exceptions=True)
        if ending in done:
            crash = self._record(ending.result(), "ended before it was ready")
        else:
            await process.stop(1.0)
            crash = self._record(
                None,
                f"decoded no token within its start-up budget of {self._startup_budget_s:g} s "
                "(--startup-budget-s, or the profile's startup_budget_s)",
            )
        self.set_state("failed", crash.message)
        raise EngineError(f"engine {self.id} {crash.message}")

    def _control(self) -> dict[str, str]:
        """The secret of ``control.py``, in the environment, which only this user can read; engines of others have no
        use for it."""
        is_ours = "specpilot_service" in self.resolved.command
        return {f"{ENV_PREFIX}CONTROL_KEY": self.control_key} if is_ours else {}

    async def _probe(self, port: int) -> list[dict[str, object]]:
        while True:
            try:
                return await decode_one_token("127.0.0.1", port, self._startup_budget_s)
            except EngineError as error:
                self.detail = str(error)
                await asyncio.sleep(_PROBE_EVERY_S)

    def keep_trying(self) -> None:
        """After a ``start`` that failed: start again with growing pauses, as after a crash."""
        self._watching = asyncio.create_task(self._watch(None))

    async def _watch(self, process: EngineProcess | None) -> None:
        num_failures = 0
        while True:
            if process is not None:
                crash = self._record(await process.wait(), "ended without being asked to")
            else:
                assert self.last_crash is not None
                crash, num_failures = self.last_crash, 1
            while True:
                if num_failures >= self.settings.max_restarts:
                    self.set_state(
                        "failed", f"{crash.message}; not started again after {num_failures} restarts"
                    )
                    return
                pause_s = restart_pause_s(self.settings, num_failures)
                self.set_state("backing_off", f"{crash.message}; started again in {pause_s:.1f} s")
                await asyncio.sleep(pause_s)
                self.num_restarts += 1
                self._on_restart()
                try:
                    process = await self._start_once()
                    # Ready is not yet well: one that dies at once again must not restart for ever without a pause.
                    num_failures = 0 if await self._lives_on(process) else num_failures + 1
                    break
                except EngineError:
                    num_failures += 1
                    assert self.last_crash is not None
                    crash = self.last_crash

    async def _lives_on(self, process: EngineProcess) -> bool:
        """Whether it is still there after a while; returns early when it ends."""
        try:
            async with asyncio.timeout(10 * self.settings.backoff_s):
                await process.wait()
            return False
        except TimeoutError:
            return True

    def _record(self, exit_code: int | None, what: str) -> CrashRecord:
        name = None
        if exit_code is not None and exit_code < 0:
            name, exit_code = signal.Signals(-exit_code).name, None
        how = f"signal {name}" if name else f"exit code {exit_code}" if exit_code is not None else "stopped"
        tail = next(
            (line for line in reversed(last_lines(self.log_path, 20)[0]) if line.strip()), "no output"
        )
        self.last_crash = CrashRecord(
            instance_id=self.id,
            revision=self.revision,
            exit_code=exit_code,
            signal=name,
            at=utc_now(),
            message=f"{what} ({how}); its last line: {tail[:300]}",
        )
        keep_log(self.log_path, self._logs / PREVIOUS_LOG)
        self.listener.engine_crashed(self, self.last_crash)
        return self.last_crash

    def bound_log(self) -> None:
        """Called now and then: the log takes at most two files of ``engine_log_bytes`` and what comes in between."""
        if bound_log(self.log_path, self.settings.engine_log_bytes):
            log.info("engine %s: its log was full; its older half is dropped", self.id)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self.set_state("stopping")
        if self._process is not None:
            await self._process.stop(_STOP_TIMEOUT_S)
        self.set_state("stopped")
