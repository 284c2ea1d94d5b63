"""Keys: made, listed, revoked. The secret itself never reaches the store."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime

from specpilot_service.schemas.admin_access import KeyCreate, KeyView
from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.database import Database, utc_now

__all__ = ["Keys"]


class Keys:
    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database, self._audit = database, audit

    def add(self, key_id: str, secret_sha256: bytes, request: KeyCreate, actor: str) -> KeyView:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO keys (id, name, secret_sha256, scopes, models, requests_per_minute, tokens_per_minute,"
                " created_at, created_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                key_id,
                request.name,
                secret_sha256,
                json.dumps(sorted(set(request.scopes))),
                None if request.models is None else json.dumps(request.models),
                request.requests_per_minute,
                request.tokens_per_minute,
                utc_now().isoformat(),
                actor,
            )
            self._audit.append(actor, "key.create", key_id, **request.model_dump(mode="json"))
        view = self.get(key_id)
        assert view is not None
        return view

    def revoke(self, key_id: str, actor: str) -> KeyView | None:
        """None for an unknown key; revoking a revoked key changes nothing."""
        with self._database.transaction():
            view = self.get(key_id)
            if view is not None and view.revoked_at is None:
                self._database.execute(
                    "UPDATE keys SET revoked_at = ? WHERE id = ?", utc_now().isoformat(), key_id
                )
                self._audit.append(actor, "key.revoke", key_id, name=view.name)
        return self.get(key_id)

    def touch(self, used: dict[str, datetime]) -> None:
        with self._database.transaction():
            self._database.execute_many(
                "UPDATE keys SET last_used_at = ? WHERE id = ?",
                [(at.isoformat(), key_id) for key_id, at in used.items()],
            )

    def get(self, key_id: str) -> KeyView | None:
        row = self._database.row("SELECT * FROM keys WHERE id = ?", key_id)
        return None if row is None else _view(row)

    def all(self) -> list[tuple[KeyView, bytes]]:
        """Every key with the hash of its secret, oldest first."""
        rows = self._database.rows("SELECT * FROM keys ORDER BY created_at, id")
        return [(_view(row), row["secret_sha256"]) for row in rows]


def _view(row: sqlite3.Row) -> KeyView:
    def moment(name: str) -> datetime | None:
        return None if row[name] is None else datetime.fromisoformat(row[name])

    created_at = moment("created_at")
    assert created_at is not None
    return KeyView(
        id=row["id"],
        name=row["name"],
        scopes=json.loads(row["scopes"]),
        models=None if row["models"] is None else json.loads(row["models"]),
        requests_per_minute=row["requests_per_minute"],
        tokens_per_minute=row["tokens_per_minute"],
        created_at=created_at,
        created_by=row["created_by"],
        revoked_at=moment("revoked_at"),
        last_used_at=moment("last_used_at"),
    )
