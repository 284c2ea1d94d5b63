"""How engine processes ended that nobody stopped."""

from __future__ import annotations

from datetime import datetime

from specpilot_service.schemas.admin import CrashRecord
from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.database import Database

__all__ = ["Crashes"]


class Crashes:
    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database, self._audit = database, audit

    def add(self, record: CrashRecord) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO crashes (instance_id, revision, exit_code, signal, at, message) VALUES (?, ?, ?, ?, ?, ?)",
                record.instance_id,
                record.revision,
                record.exit_code,
                record.signal,
                record.at.isoformat(),
                record.message,
            )
            self._audit.append("sidecar", "engine.crash", record.instance_id, message=record.message)

    def last(self) -> CrashRecord | None:
        row = self._database.row("SELECT * FROM crashes ORDER BY position DESC LIMIT 1")
        if row is None:
            return None
        fields = {name: row[name] for name in ("instance_id", "revision", "exit_code", "signal", "message")}
        return CrashRecord(at=datetime.fromisoformat(row["at"]), **fields)
