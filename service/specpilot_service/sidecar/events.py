"""Live events of the admin API: kept for a while, so that a reader that reconnects misses nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Literal

from specpilot_service.schemas.admin import SidecarEvent
from specpilot_service.sidecar.store.database import utc_now

__all__ = ["EventBus"]

_NUM_KEPT = 1000


class EventBus:
    """Belongs to the event loop. A reader that lags is not waited for: it skips to what is still kept."""

    def __init__(self) -> None:
        self._kept: deque[SidecarEvent] = deque(maxlen=_NUM_KEPT)
        self._next_id = 1
        self._news = asyncio.Event()
        self.num_readers = 0
        self._is_closed = False

    def publish(
        self, kind: Literal["switch", "engine", "audit", "traffic", "job"], data: dict[str, Any]
    ) -> None:
        self._kept.append(SidecarEvent(id=self._next_id, at=utc_now(), kind=kind, data=data))
        self._next_id += 1
        self._wake()

    def close(self) -> None:
        """All readers end."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def read(self, after_id: int | None, idle_s: float) -> AsyncIterator[SidecarEvent | None]:
        """Events behind ``after_id`` (None: from now on) as they come; None whenever none came for ``idle_s``."""
        # An id of an earlier process lies ahead of ours: then everything that is kept is new to the reader.
        last = self._next_id - 1 if after_id is None else after_id if after_id < self._next_id else 0
        self.num_readers += 1
        try:
            while not self._is_closed:
                news = self._news
                for event in [event for event in self._kept if event.id > last]:
                    yield event
                    last = event.id
                if news is not self._news:
                    continue
                try:
                    async with asyncio.timeout(idle_s):
                        await news.wait()
                except TimeoutError:
                    yield None
        finally:
            self.num_readers -= 1
