"""The state folder: one process at a time, one database, and its use from the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from specpilot.errors import ConfigError
from specpilot_service.schemas.admin import GateResult, ResolvedView, SwitchView
from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.crashes import Crashes
from specpilot_service.sidecar.store.database import Database
from specpilot_service.sidecar.store.jobs import Jobs
from specpilot_service.sidecar.store.keys import Keys
from specpilot_service.sidecar.store.revisions import Revisions
from specpilot_service.sidecar.store.switches import Switches
from specpilot_service.sidecar.store.usage import Usage

__all__ = ["StateStore"]

P = ParamSpec("P")
T = TypeVar("T")


class StateStore:
    """The parts (``keys``, ``switches``, ...) are synchronous; on the event loop they are called through ``call``.

    Parameters
    ----------
    folder
        Made with mode 0700 if it does not exist.

    Raises
    ------
    ConfigError
        If another process uses the folder, or its database cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"state folder {folder}: {error.strerror}; give a folder with --state"
            ) from None
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_file)
            raise ConfigError(
                f"state folder {folder}: another sidecar uses it; stop that one or give another --state"
            ) from None
        self.folder = folder
        # Made here with its mode; SQLite gives its other files the same.
        os.close(os.open(folder / "state.sqlite3", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self.database = Database(folder / "state.sqlite3")
        self.audit_log = AuditLog(self.database)
        self.keys = Keys(self.database, self.audit_log)
        self.revisions = Revisions(self.database, self.audit_log)
        self.switches = Switches(self.database, self.audit_log)
        self.jobs = Jobs(self.database, self.audit_log)
        self.usage = Usage(self.database)
        self.crashes = Crashes(self.database, self.audit_log)
        # One thread: a write waits for the disk, and the event loop must not wait with it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def call(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **kwargs))

    # Changes of several parts that are one change

    def begin_switch(
        self,
        switch_id: str,
        resolved: ResolvedView,
        revision: int | None,
        *,
        actor: str,
        reason: str,
        **fields: Any,
    ) -> int:
        """A switch to ``revision``, or to a new one of ``resolved``; its number. The rest is for ``Switches.begin``."""
        with self.database.transaction():
            number = revision or self.revisions.add(resolved, "pending", actor, reason)
            self.switches.begin(switch_id, to_revision=number, actor=actor, reason=reason, **fields)
        return number

    def try_switch_again(self, tried: SwitchView) -> None:
        with self.database.transaction():
            self.revisions.reopen(tried.to_revision)
            self.switches.try_again(tried.id)

    def commit_switch(self, switch_id: str, number: int, gates: list[GateResult]) -> None:
        """The point of no return: the new revision is the current one."""
        with self.database.transaction():
            self.revisions.make_current(number, switch_id, gates)
            self.switches.move(switch_id, "promoting", "committed: all new requests go to it")

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self.usage.flush()
        self.database.close()
        os.close(self._lock_file)
