"""First come, first served: who runs, who waits, how many may wait."""

from __future__ import annotations

import threading
import time
from collections import deque

from specpilot.engines.base import CancelToken
from specpilot.errors import Overloaded

__all__ = ["Turns"]

# A waiting thread looks at its cancel token this often.
_POLL_S = 0.05


class Turns:
    """A bounded queue for one slot. A ticket is an opaque object; every method may be called from any thread."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()
        self._is_draining = False

    def take_ticket(self) -> object:
        with self._changed:
            if self._is_draining:
                raise Overloaded(
                    "the engine is shutting down and takes no new requests; send this one elsewhere"
                )
            if len(self._queue) > self._max_waiting:
                raise Overloaded(
                    f"got a request while {len(self._queue) - 1} wait, expected at most {self._max_waiting}; "
                    "try again later"
                )
            ticket = object()
            self._queue.append(ticket)
            return ticket

    def wait(self, ticket: object, cancel: CancelToken) -> bool:
        """Block until it is this ticket's turn; False if the request was cancelled first."""
        with self._changed:
            while self._queue[0] is not ticket:
                if cancel.is_cancelled:
                    return False
                self._changed.wait(_POLL_S)
        return True

    def give_back(self, ticket: object) -> None:
        """Leave the queue, running or waiting; a second call does nothing."""
        with self._changed:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        with self._changed:
            return min(1, len(self._queue)), max(0, len(self._queue) - 1)

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def drain(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._is_draining = True
            while self._queue:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True
