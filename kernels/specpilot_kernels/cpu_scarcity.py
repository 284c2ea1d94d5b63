"""Whether the machine has cores to spare: where it has none, helper threads take from their caller what they spin."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Rest", "waited_s"]

# How often it is looked whether cores are scarce, which share of the time may be lost in waits, and how long nothing is
# shared then: twice as long when it comes again soon after.
_LOOK_S, _MOST_LOST = 0.05, 0.25
_LEAST_REST_S, _MOST_REST_S = 0.1, 25.6


class Rest:
    """Decides for how long nothing is shared where cores are scarce. Python's lock guards it well enough: who reads an
    old number shares a loop more.

    ``read_clocks`` gives the clocks that went by with helpers stuck, and the clock at the end of the newest loop.
    """

    def __init__(self, read_clocks: Callable[[], list[int]]) -> None:
        self._read_clocks = read_clocks
        self._until, self._length_s = 0.0, _LEAST_REST_S
        self._seen = _Seen.now(self._read_clocks)

    def is_on(self) -> bool:
        now = time.monotonic()
        if now < self._until:
            return True
        if now < self._seen.at + _LOOK_S:
            return False
        before, self._seen = self._seen, _Seen.now(self._read_clocks)
        if not self._seen.is_scarce_since(before):
            return False
        # Sharing for as long as it rested was no trouble: that was another time.
        is_again = now - self._until < self._length_s
        self._length_s = min(2 * self._length_s, _MOST_REST_S) if is_again else _LEAST_REST_S
        self._until = now + self._length_s
        return True


@dataclass(frozen=True)
class _Seen:
    """What a thread knows of the machine's cores at a moment."""

    at: float
    thread: int
    stuck: int
    clock: int
    waited_s: float

    @classmethod
    def now(cls, read_clocks: Callable[[], list[int]]) -> _Seen:
        stuck, clock = read_clocks()
        return cls(time.monotonic(), threading.get_native_id(), stuck, clock, waited_s())

    def is_scarce_since(self, before: _Seen) -> bool:
        """Too much of the time went by with helpers stuck, or with this thread ready to run and without a core."""
        lost = (self.stuck - before.stuck) / max(1, self.clock - before.clock)
        if self.thread == before.thread:
            lost += (self.waited_s - before.waited_s) / (self.at - before.at)
        return lost > _MOST_LOST


def waited_s() -> float:
    """Seconds that the calling thread has been ready to run without a core; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
