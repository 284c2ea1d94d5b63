"""What keys used, by hour and model. Collected in memory and written every second: a kill loses at most that."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import datetime

from specpilot_service.schemas.admin_access import UsageRow
from specpilot_service.sidecar.store.database import Database, utc_now

__all__ = ["Usage"]

_COUNTS = ("num_requests", "num_refused", "prompt_tokens", "completion_tokens", "estimated_tokens")


class Usage:
    """Thread safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * len(_COUNTS))

    def add(
        self,
        key_id: str,
        model: str,
        *,
        num_requests: int = 0,
        num_refused: int = 0,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        estimated_tokens: int = 0,
    ) -> None:
        hour = utc_now().replace(minute=0, second=0, microsecond=0).isoformat()
        added = (num_requests, num_refused, prompt_tokens, completion_tokens, estimated_tokens)
        with self._lock:
            row = self._pending[key_id, hour, model]
            for index, count in enumerate(added):
                row[index] += count

    def flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, defaultdict(lambda: [0] * len(_COUNTS))
        if not pending:
            return
        marks = ", ".join("?" * (3 + len(_COUNTS)))
        sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTS)
        with self._database.transaction():
            self._database.execute_many(
                f"INSERT INTO usage (key_id, hour, model, {', '.join(_COUNTS)}) VALUES ({marks})"
                f" ON CONFLICT (key_id, hour, model) DO UPDATE SET {sums}",
                [(*place, *counts) for place, counts in pending.items()],
            )

    def of(self, key_id: str) -> list[UsageRow]:
        """Newest hour first."""
        self.flush()
        rows = self._database.rows(
            "SELECT * FROM usage WHERE key_id = ? ORDER BY hour DESC, model LIMIT 2000", key_id
        )
        return [
            UsageRow(
                hour=datetime.fromisoformat(row["hour"]),
                model=row["model"],
                **{name: row[name] for name in _COUNTS},
            )
            for row in rows
        ]
