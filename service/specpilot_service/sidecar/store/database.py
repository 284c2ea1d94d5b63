"""One SQLite file in WAL mode: opening, migrating, and transactions."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specpilot.errors import ConfigError
from specpilot_service.sidecar.store.migrations import MIGRATIONS

__all__ = ["Database", "utc_now"]


def utc_now() -> datetime:
    return datetime.now(UTC)


class Database:
    """A connection that any thread may use, one at a time.

    A change is durable when ``transaction`` has returned (``synchronous=FULL``): a process or a machine that stops
    at any point leaves the state before the transaction or the one behind it.

    Raises
    ------
    ConfigError
        For a file that is no state file, and for one of a later version, which this build could damage.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._depth = 0
        self._after_commit: list[Callable[[], None]] = []
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        self._connection.row_factory = sqlite3.Row
        try:
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._migrate()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ConfigError(f"state file {path}: {error}; expected a file that a sidecar made") from None

    def _migrate(self) -> None:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            self._connection.close()
            raise ConfigError(
                f"state file {self.path}: got version {version}, expected at most {len(MIGRATIONS)}; "
                "it was written by a later release: start that one"
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            # executescript would commit on its own; inside BEGIN and COMMIT a migration is one change.
            self._connection.executescript(
                f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;"
            )

    @property
    def version(self) -> int:
        return int(self.rows("PRAGMA user_version")[0][0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside take effect together or not at all; a transaction inside one joins it."""
        with self._lock:
            if self._depth == 0:
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._after_commit.clear()
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth > 0:
                return
            self._connection.execute("COMMIT")
            calls, self._after_commit = self._after_commit, []
        for call in calls:
            call()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this when the running transaction is durable; dropped if it is rolled back."""
        self._after_commit.append(call)

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        found = self.rows(sql, *values)
        return found[0] if found else None

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """One change; only inside ``transaction``, so that none escapes its audit entry."""
        with self._lock:
            if self._depth == 0:
                raise AssertionError("a change outside a transaction")
            return self._connection.execute(sql, values)

    def execute_many(self, sql: str, values: list[tuple[Any, ...]]) -> None:
        with self._lock:
            if self._depth == 0:
                raise AssertionError("a change outside a transaction")
            self._connection.executemany(sql, values)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
