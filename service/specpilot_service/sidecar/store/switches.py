"""Switches and the states they went through. At most one is open; the store itself refuses a second."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime

from specpilot_service.schemas.admin import GateResult, SwitchMode, SwitchState, SwitchStep, SwitchView
from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.database import Database, utc_now

__all__ = ["END_STATES", "Switches"]

END_STATES = frozenset({"applied", "rolled_back", "cancelled", "failed"})

_SELECT = (
    "SELECT switches.*, revisions.profile_id, revisions.profile_name FROM switches"
    " JOIN revisions ON revisions.number = switches.to_revision"
)


class Switches:
    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database, self._audit = database, audit

    def begin(
        self,
        switch_id: str,
        *,
        mode: SwitchMode,
        from_revision: int | None,
        to_revision: int,
        canary_share: float | None,
        is_promoted_at_once: bool,
        actor: str,
        reason: str,
    ) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO switches (id, state, mode, from_revision, to_revision, canary_share,"
                " is_promoted_at_once, actor, reason, created_at) VALUES (?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?)",
                *(switch_id, mode, from_revision, to_revision, canary_share, int(is_promoted_at_once)),
                *(actor, reason, utc_now().isoformat()),
            )
            self._step(switch_id, "pending", reason)
            self._audit.append(
                *(actor, "switch.pending", switch_id),
                mode=mode,
                from_revision=from_revision,
                to_revision=to_revision,
                canary_share=canary_share,
                reason=reason,
            )

    def move(
        self,
        switch_id: str,
        state: SwitchState,
        message: str,
        *,
        actor: str = "sidecar",
        error: str | None = None,
    ) -> None:
        """The switch is in ``state`` from now on. Stored before it is acted on."""
        with self._database.transaction():
            is_end = state in END_STATES
            self._database.execute(
                "UPDATE switches SET state = ?, is_open = ?, ended_at = ?, error = coalesce(?, error) WHERE id = ?",
                state,
                int(not is_end),
                utc_now().isoformat() if is_end else None,
                error,
                switch_id,
            )
            self._step(switch_id, state, message)
            self._audit.append(actor, f"switch.{state}", switch_id, message=message, error=error)

    def try_again(self, switch_id: str) -> None:
        """A switch that was rolled back is open once more, with the steps of this try and the error of the last one."""
        with self._database.transaction():
            row = self._database.row("SELECT * FROM switches WHERE id = ?", switch_id)
            assert row is not None and row["state"] == "rolled_back", row
            num_tries, message = row["num_tries"] + 1, f"try {row['num_tries'] + 1}, after: {row['error']}"
            self._database.execute(
                "UPDATE switches SET state = 'pending', is_open = 1, ended_at = NULL, num_tries = ? WHERE id = ?",
                *(num_tries, switch_id),
            )
            self._database.execute("DELETE FROM switch_steps WHERE switch_id = ?", switch_id)
            self._step(switch_id, "pending", message)
            self._audit.append("sidecar", "switch.retry", switch_id, num_tries=num_tries, error=row["error"])

    def note(self, switch_id: str, actor: str, action: str, message: str) -> None:
        """What somebody asked of a running switch."""
        with self._database.transaction():
            self._audit.append(actor, f"switch.{action}", switch_id, message=message)

    def set_share(self, switch_id: str, share: float, actor: str, reason: str) -> None:
        with self._database.transaction():
            self._database.execute("UPDATE switches SET canary_share = ? WHERE id = ?", share, switch_id)
            self._step(switch_id, "canary", f"the new engine gets {share:.0%} of new requests")
            self._audit.append(actor, "switch.share", switch_id, share=share, reason=reason)

    def set_gates(self, switch_id: str, gates: list[GateResult]) -> None:
        shown = [gate.model_dump(mode="json") for gate in gates]
        with self._database.transaction():
            self._database.execute("UPDATE switches SET gates = ? WHERE id = ?", json.dumps(shown), switch_id)
            self._audit.append("sidecar", "switch.gates", switch_id, gates=shown)

    def _step(self, switch_id: str, state: str, message: str) -> None:
        self._database.execute(
            "INSERT INTO switch_steps (switch_id, state, at, message) VALUES (?, ?, ?, ?)",
            *(switch_id, state, utc_now().isoformat(), message),
        )

    def get(self, switch_id: str) -> SwitchView | None:
        row = self._database.row(f"{_SELECT} WHERE switches.id = ?", switch_id)
        return None if row is None else self._view(row)

    def open(self) -> SwitchView | None:
        row = self._database.row(f"{_SELECT} WHERE switches.is_open = 1")
        return None if row is None else self._view(row)

    def all(self) -> list[SwitchView]:
        """The open one, then newest first."""
        rows = self._database.rows(
            f"{_SELECT} ORDER BY switches.is_open DESC, switches.position DESC LIMIT 200"
        )
        return [self._view(row) for row in rows]

    def _view(self, row: sqlite3.Row) -> SwitchView:
        steps = self._database.rows(
            "SELECT * FROM switch_steps WHERE switch_id = ? ORDER BY position", row["id"]
        )
        same = ("id", "state", "mode", "profile_id", "profile_name", "from_revision", "to_revision")
        more = ("canary_share", "actor", "reason", "num_tries", "error")
        return SwitchView(
            **{name: row[name] for name in (*same, *more)},
            is_promoted_at_once=bool(row["is_promoted_at_once"]),
            gates=[GateResult.model_validate(gate) for gate in json.loads(row["gates"])],
            created_at=datetime.fromisoformat(row["created_at"]),
            ended_at=None if row["ended_at"] is None else datetime.fromisoformat(row["ended_at"]),
            steps=[
                SwitchStep(
                    state=step["state"], at=datetime.fromisoformat(step["at"]), message=step["message"]
                )
                for step in steps
            ],
        )
