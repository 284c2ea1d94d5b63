"""The audit log: append only, each entry chained to the one before by its hash.

What it shows: an entry that was changed, removed or put between others breaks every later hash. What it cannot show by
itself: a log that was cut at its end or rewritten from some entry on by somebody who may write the state file. For that
every entry also goes to the process log, which leaves the machine, and an export names its last hash.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from specpilot.hash_chain import GENESIS_HASH, Link, link_hash, verify_chain
from specpilot_service.schemas.admin_access import AuditEntry, ChainReport
from specpilot_service.sidecar.store.database import Database, utc_now

__all__ = ["AuditLog"]

log = logging.getLogger(__name__)

_PAGE = 1000


class AuditLog:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._on_entry: Callable[[AuditEntry], None] = lambda entry: None

    def listen(self, on_entry: Callable[[AuditEntry], None]) -> None:
        """Call this with every entry once its transaction is durable, on the thread that made it."""
        self._on_entry = on_entry

    def append(self, actor: str, action: str, subject: str, **detail: Any) -> AuditEntry:
        """Add one entry; inside the transaction of the change that it records."""
        last = self._database.row("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1")
        seq, previous = (1, GENESIS_HASH) if last is None else (last["seq"] + 1, last["hash"])
        at = utc_now().isoformat()
        digest = link_hash(previous, _fields(seq, at, actor, action, subject, detail))
        self._database.execute(
            "INSERT INTO audit_log VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(seq, at, actor, action, subject, json.dumps(detail, sort_keys=True), previous, digest),
        )
        entry = AuditEntry(
            seq=seq,
            at=datetime.fromisoformat(at),
            actor=actor,
            action=action,
            subject=subject,
            detail=detail,
            previous_hash=previous,
            hash=digest,
        )
        self._database.after_commit(lambda: self._tell(entry))
        return entry

    def _tell(self, entry: AuditEntry) -> None:
        shown = entry.model_dump(mode="json")
        log.info("audit: %s %s by %s", entry.action, entry.subject, entry.actor, extra={"audit": shown})
        self._on_entry(entry)

    def page(self, before: int | None, limit: int, action: str | None) -> list[AuditEntry]:
        """Newest first; ``action`` matches a whole action or, ending in a dot, all that begin with it."""
        pattern = action + "*" if action and action.endswith(".") else action or "*"
        rows = self._database.rows(
            "SELECT * FROM audit_log WHERE seq < ? AND action GLOB ? ORDER BY seq DESC LIMIT ?",
            *(before or 2**62, pattern, limit),
        )
        return [_entry(row) for row in rows]

    def walk(self) -> Iterator[AuditEntry]:
        """All entries, oldest first, read page by page."""
        last = 0
        while entries := self.after(last):
            yield from entries
            last = entries[-1].seq

    def after(self, seq: int) -> list[AuditEntry]:
        """A page of the entries behind this one, oldest first."""
        rows = self._database.rows("SELECT * FROM audit_log WHERE seq > ? ORDER BY seq LIMIT ?", seq, _PAGE)
        return [_entry(row) for row in rows]

    def verify(self) -> ChainReport:
        """Recompute all hashes."""
        state = verify_chain(
            Link(entry.seq, entry.previous_hash, entry.hash, _fields_of(entry)) for entry in self.walk()
        )
        return ChainReport(
            is_intact=state.is_intact,
            num_entries=state.num_links,
            head_hash=state.head_hash,
            first_bad_seq=state.first_bad_seq,
            message=state.message,
        )


def _fields(
    seq: int, at: str, actor: str, action: str, subject: str, detail: dict[str, Any]
) -> dict[str, Any]:
    """What an entry's hash covers."""
    return {"seq": seq, "at": at, "actor": actor, "action": action, "subject": subject, "detail": detail}


def _fields_of(entry: AuditEntry) -> dict[str, Any]:
    return _fields(entry.seq, entry.at.isoformat(), entry.actor, entry.action, entry.subject, entry.detail)


def _entry(row: sqlite3.Row) -> AuditEntry:
    fields = {name: row[name] for name in ("seq", "actor", "action", "subject", "previous_hash", "hash")}
    return AuditEntry(at=datetime.fromisoformat(row["at"]), detail=json.loads(row["detail"]), **fields)
