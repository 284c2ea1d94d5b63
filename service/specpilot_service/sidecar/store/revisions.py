"""Revisions: what was, is and may be applied, with who, when and why. At most one is current."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime

from specpilot_service.schemas.admin import (
    GateResult,
    ResolvedView,
    RevisionDetail,
    RevisionState,
    RevisionView,
)
from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.database import Database, utc_now

__all__ = ["Revisions"]


class Revisions:
    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database, self._audit = database, audit

    def add(self, resolved: ResolvedView, state: RevisionState, actor: str, reason: str) -> int:
        with self._database.transaction():
            cursor = self._database.execute(
                "INSERT INTO revisions (state, profile_id, profile_name, resolved, actor, reason, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                state,
                resolved.profile_id,
                resolved.name,
                resolved.model_dump_json(),
                actor,
                reason,
                utc_now().isoformat(),
            )
            number = cursor.lastrowid
            assert number is not None
            self._audit.append(
                *(actor, "revision.create", str(number)),
                state=state,
                profile=resolved.name,
                profile_id=resolved.profile_id,
                reason=reason,
            )
        return number

    def make_current(self, number: int, switch_id: str, gates: list[GateResult]) -> None:
        """This revision is the current one from now on, the one before is superseded. In one transaction."""
        shown = json.dumps([gate.model_dump(mode="json") for gate in gates])
        with self._database.transaction():
            self._database.execute("UPDATE revisions SET state = 'superseded' WHERE state = 'current'")
            self._database.execute(
                "UPDATE revisions SET state = 'current', applied_at = ?, switch_id = ?, gates = ? WHERE number = ?",
                *(utc_now().isoformat(), switch_id, shown, number),
            )

    def reject(self, number: int) -> None:
        with self._database.transaction():
            self._database.execute(
                "UPDATE revisions SET state = 'rejected' WHERE number = ? AND state != 'current'", number
            )

    def reopen(self, number: int) -> None:
        """A rejected revision is tried again."""
        with self._database.transaction():
            self._database.execute(
                "UPDATE revisions SET state = 'pending' WHERE number = ? AND state = 'rejected'", number
            )

    def current(self) -> RevisionDetail | None:
        row = self._database.row("SELECT * FROM revisions WHERE state = 'current'")
        return None if row is None else _detail(row)

    def get(self, number: int) -> RevisionDetail | None:
        row = self._database.row("SELECT * FROM revisions WHERE number = ?", number)
        return None if row is None else _detail(row)

    def all(self) -> list[RevisionView]:
        """Newest first."""
        rows = self._database.rows("SELECT * FROM revisions ORDER BY number DESC LIMIT 1000")
        return [_detail(row) for row in rows]


def _detail(row: sqlite3.Row) -> RevisionDetail:
    same = ("number", "state", "profile_id", "profile_name", "actor", "reason", "switch_id")
    return RevisionDetail(
        **{name: row[name] for name in same},
        created_at=datetime.fromisoformat(row["created_at"]),
        applied_at=None if row["applied_at"] is None else datetime.fromisoformat(row["applied_at"]),
        gates=[GateResult.model_validate(gate) for gate in json.loads(row["gates"])],
        resolved=ResolvedView.model_validate_json(row["resolved"]),
    )
