"""The ledger: everything the controller did and decided, append only, each entry chained to the one before.

One SQLite file in WAL mode with ``synchronous=FULL``: an entry whose ``append`` has returned survives a process or a
machine that stops at any point. The controller keeps no other state; it reads the ledger when it starts.

File format, version 1 (``user_version``): table ``entries`` (seq, at, actor, kind, detail as JSON, previous_hash,
hash).
Export, version 1: JSON lines, a header with the number of entries and the last hash, then the entries.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from specpilot.errors import ConfigError
from specpilot.hash_chain import GENESIS_HASH, ChainState, Link, link_hash, verify_chain

__all__ = ["Entry", "Ledger", "LedgerError", "read_export"]

_VERSION: Final = 1
_FORMAT: Final = "specpilot-ledger"
_TABLE = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL,
    previous_hash TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append only'); END;
"""
_COLUMNS: Final = ("seq", "at", "actor", "kind", "detail", "previous_hash", "hash")


class LedgerError(ConfigError):
    """The ledger was changed, cut, or is none."""


@dataclass(frozen=True)
class Entry:
    """One line. ``at`` is UTC, ISO 8601; ``actor`` who asked."""

    seq: int
    at: str
    actor: str
    kind: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str

    @property
    def fields(self) -> dict[str, Any]:
        """What the hash covers."""
        return {"seq": self.seq, "at": self.at, "actor": self.actor, "kind": self.kind, "detail": self.detail}

    def as_json(self) -> dict[str, Any]:
        return self.fields | {"previous_hash": self.previous_hash, "hash": self.hash}


class Ledger:
    """Thread rule: any thread, one at a time.

    Parameters
    ----------
    is_read_only
        Changes and makes nothing, not even beside the file.

    Raises
    ------
    LedgerError
        The file is no ledger, of another version, or its chain is broken.
    """

    def __init__(
        self,
        path: Path,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        is_read_only: bool = False,
    ) -> None:
        self.path, self._now, self._lock = path, now, threading.Lock()
        place = f"{path.resolve().as_uri()}?{_open_mode(path) if is_read_only else 'mode=rwc'}"
        try:
            self._connection = sqlite3.connect(
                place, uri=True, check_same_thread=False, isolation_level=None, timeout=10.0
            )
        except sqlite3.Error as error:
            raise LedgerError(f"ledger {path}: {error}") from None
        try:
            # Before anything is written: the file may be somebody else's.
            is_new = self._is_empty() and not is_read_only
            if not is_new:
                self._check_schema()
            if not is_read_only:
                for pragma in ("journal_mode=WAL", "synchronous=FULL"):
                    self._connection.execute(f"PRAGMA {pragma}")
            if is_new:
                self._connection.executescript(f"BEGIN;{_TABLE}PRAGMA user_version={_VERSION};COMMIT;")
            state = self.verify()
        except LedgerError:
            self._connection.close()
            raise
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._connection.close()
            raise LedgerError(f"ledger {path}: {error}; expected a file that a controller made") from None
        if not state.is_intact:
            self._connection.close()
            raise LedgerError(f"ledger {path}: {state.message}; restore it from an export")

    def _is_empty(self) -> bool:
        version, schema = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("user_version", "schema_version")
        )
        return bool(version == 0 and schema == 0)

    def _check_schema(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        columns = tuple(row[1] for row in self._connection.execute("PRAGMA table_info(entries)"))
        if version and version != _VERSION:
            raise LedgerError(f"ledger {self.path}: got version {version}, expected {_VERSION}")
        if not version or columns != _COLUMNS:
            raise LedgerError(f"ledger {self.path}: no ledger; expected a file that a controller made")

    def append(self, actor: str, kind: str, **detail: Any) -> Entry:
        """Add one entry; it is durable when this returns. ``detail`` must be JSON."""
        text = json.dumps(detail, sort_keys=True, allow_nan=False)
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                last = self._connection.execute(
                    "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1"
                ).fetchone()
                seq, previous = (1, GENESIS_HASH) if last is None else (last[0] + 1, last[1])
                draft = Entry(seq, self._now().isoformat(), actor, kind, json.loads(text), previous, "")
                digest = link_hash(previous, draft.fields)
                self._connection.execute(
                    "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (seq, draft.at, actor, kind, text, previous, digest),
                )
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        return Entry(**{**draft.__dict__, "hash": digest})

    def entries(self) -> list[Entry]:
        """All, oldest first."""
        with self._lock:
            rows = self._connection.execute("SELECT * FROM entries ORDER BY seq").fetchall()
        return [Entry(row[0], row[1], row[2], row[3], json.loads(row[4]), row[5], row[6]) for row in rows]

    def verify(self, receipt: tuple[int, str] | None = None) -> ChainState:
        """Recompute all hashes; with ``receipt``, a (seq, hash) somebody kept, also that this entry still stands.

        A ledger that was cut at its end or written anew is consistent in itself: only a receipt shows it.
        """
        entries = self.entries()
        state = verify_chain(_links(entries))
        if state.is_intact and receipt is not None:
            seq, digest = receipt
            if not (1 <= seq <= len(entries) and entries[seq - 1].hash == digest):
                return ChainState(state.num_links, state.head_hash, first_bad_seq=seq)
        return state

    def export(self, path: Path) -> None:
        entries = self.entries()
        head = entries[-1].hash if entries else GENESIS_HASH
        header = {"format": _FORMAT, "version": _VERSION, "num_entries": len(entries), "head_hash": head}
        lines = [header, *(entry.as_json() for entry in entries)]
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"ledger export: cannot write {path}: {error.strerror}") from None

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def read_export(path: Path) -> list[Entry]:
    """Entries of an export, checked.

    Raises
    ------
    LedgerError
        It is no export, of another version, or an entry is missing or changed.
    """
    try:
        header, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        entries = [Entry(**row) for row in rows]
        kind = (header["format"], header["version"])
        expected = (header["num_entries"], header["head_hash"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LedgerError(f"ledger export {path}: cannot be read: {error}") from None
    if kind != (_FORMAT, _VERSION):
        raise LedgerError(f"ledger export {path}: got {kind}, expected {(_FORMAT, _VERSION)}")
    state = verify_chain(_links(entries))
    if not state.is_intact or (state.num_links, state.head_hash) != expected:
        raise LedgerError(f"ledger export {path}: {state.message}; its header says {expected[0]} entries")
    return entries


def _open_mode(path: Path) -> str:
    """Without entries outside the file it is read as it stands: SQLite would make files beside it otherwise."""
    return "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"


def _links(entries: list[Entry]) -> Iterator[Link]:
    return (Link(entry.seq, entry.previous_hash, entry.hash, entry.fields) for entry in entries)
