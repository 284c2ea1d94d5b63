"""Jobs and how they ended. At most one runs; the store itself refuses a second."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from specpilot_service.schemas.admin_jobs import JobOrigin, JobProgress, JobState, JobView
from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.database import Database, utc_now

__all__ = ["Jobs", "cancel_message"]


def cancel_message(actor: str, reason: str) -> str:
    """The error of a job or switch that somebody cancelled."""
    return f"cancelled by {actor}: {reason}"


class Jobs:
    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database, self._audit = database, audit

    def add(
        self,
        job_id: str,
        kind: str,
        origin: JobOrigin,
        options: Mapping[str, Any],
        *,
        revision: int | None,
        actor: str,
        reason: str,
    ) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO jobs (id, kind, origin, state, revision, options, actor, reason, created_at)"
                " VALUES (?, ?, ?, 'queued', ?, ?, ?, ?, ?)",
                *(job_id, kind, origin, revision, json.dumps(options), actor, reason, utc_now().isoformat()),
            )
            self._audit.append(
                *(actor, "job.queued", job_id),
                kind=kind,
                origin=origin,
                options=dict(options),
                reason=reason,
            )

    def begin(self, job_id: str, revision: int | None) -> bool:
        """False if it is not queued any more."""
        with self._database.transaction():
            changed = self._database.execute(
                "UPDATE jobs SET state = 'running', revision = ?, started_at = ?"
                " WHERE id = ? AND state = 'queued'",
                *(revision, utc_now().isoformat(), job_id),
            ).rowcount
            if changed:
                self._audit.append("sidecar", "job.running", job_id, revision=revision)
        return changed == 1

    def cancel_queued(self, job_id: str, actor: str, reason: str) -> bool:
        """False if it is not queued any more."""
        with self._database.transaction():
            row = self._database.row("SELECT state FROM jobs WHERE id = ?", job_id)
            is_queued = row is not None and row["state"] == "queued"
            if is_queued:
                self.end(job_id, "cancelled", error=cancel_message(actor, reason), actor=actor)
        return is_queued

    def put_back(self, job_id: str, why: str) -> None:
        """Running no more, and first in the queue again."""
        with self._database.transaction():
            self._database.execute(
                "UPDATE jobs SET state = 'queued', started_at = NULL, progress = NULL WHERE id = ?", job_id
            )
            self._audit.append("sidecar", "job.queued", job_id, reason=why)

    def end(
        self,
        job_id: str,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
        actor: str = "sidecar",
    ) -> None:
        with self._database.transaction():
            self._database.execute(
                "UPDATE jobs SET state = ?, result = ?, error = ?, ended_at = ? WHERE id = ?",
                *(state, None if result is None else json.dumps(result), error),
                *(utc_now().isoformat(), job_id),
            )
            verdict = {} if result is None else {name: result[name] for name in ("passed", "message")}
            self._audit.append(actor, f"job.{state}", job_id, error=error, **verdict)

    def set_progress(self, job_id: str, progress: JobProgress) -> None:
        """Kept for those who ask; no change of state, so no entry of the audit log."""
        with self._database.transaction():
            self._database.execute(
                "UPDATE jobs SET progress = ? WHERE id = ?", progress.model_dump_json(), job_id
            )

    def end_left(self) -> list[str]:
        """What an earlier process left running, or queued for a switch of its own, has failed; the ids."""
        rows = self._database.rows(
            "SELECT id FROM jobs WHERE state = 'running' OR (state = 'queued' AND origin = 'gate')"
        )
        left = [row["id"] for row in rows]
        for job_id in left:
            self.end(job_id, "failed", error="the sidecar ended while it ran")
        return left

    def next(self, *, gates_only: bool) -> JobView | None:
        """The queued job that runs next: those that a switch waits for, then in order of arrival."""
        row = self._database.row(
            "SELECT * FROM jobs WHERE state = 'queued' AND (origin = 'gate' OR ?)"
            " ORDER BY origin = 'gate' DESC, position LIMIT 1",
            int(not gates_only),
        )
        return None if row is None else _view(row)

    def get(self, job_id: str) -> JobView | None:
        row = self._database.row("SELECT * FROM jobs WHERE id = ?", job_id)
        return None if row is None else _view(row)

    def all(self, kind: str | None, limit: int) -> list[JobView]:
        """Newest first."""
        rows = self._database.rows(
            "SELECT * FROM jobs WHERE kind = coalesce(?, kind) ORDER BY position DESC LIMIT ?", kind, limit
        )
        return [_view(row) for row in rows]

    def last(self, kind: str, *, origin: JobOrigin) -> JobView | None:
        row = self._database.row(
            "SELECT * FROM jobs WHERE kind = ? AND origin = ? ORDER BY position DESC LIMIT 1", kind, origin
        )
        return None if row is None else _view(row)

    def last_result(self, kind: str) -> JobView | None:
        """The newest job of the kind that ended with a result."""
        row = self._database.row(
            "SELECT * FROM jobs WHERE kind = ? AND state = 'succeeded' ORDER BY position DESC LIMIT 1", kind
        )
        return None if row is None else _view(row)


def _view(row: sqlite3.Row) -> JobView:
    def at(name: str) -> datetime | None:
        return None if row[name] is None else datetime.fromisoformat(row[name])

    def parsed(name: str) -> Any:
        return None if row[name] is None else json.loads(row[name])

    same = ("id", "kind", "origin", "state", "revision", "error", "actor", "reason")
    return JobView(
        **{name: row[name] for name in same},
        options=parsed("options"),
        progress=parsed("progress"),
        result=parsed("result"),
        created_at=datetime.fromisoformat(row["created_at"]),
        started_at=at("started_at"),
        ended_at=at("ended_at"),
    )
