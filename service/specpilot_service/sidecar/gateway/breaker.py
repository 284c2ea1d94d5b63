"""The circuit breaker of one engine. An engine that refuses a request works; one that breaks off does not."""

from __future__ import annotations

import time
from collections.abc import Callable

from specpilot_service.schemas.admin import BreakerState
from specpilot_service.sidecar.errors import SidecarError

__all__ = ["Breaker"]


class Breaker:
    """Opens after ``num_failures`` in a row; after ``cooldown_s`` one request tries, and its end decides.

    Only broken connections and 5xx (503 aside, which is the engine's word for overload) are failures. 4xx and 503
    count neither way.
    """

    def __init__(
        self, num_failures: int, cooldown_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_failures, self._cooldown_s, self._clock = num_failures, cooldown_s, clock
        self._num_failures = 0
        self._opened_at_s: float | None = None
        self._is_trying = False

    @property
    def state(self) -> BreakerState:
        if self._opened_at_s is None:
            return "closed"
        return "half_open" if self._clock() - self._opened_at_s >= self._cooldown_s else "open"

    def check(self) -> None:
        """Raise 503 if no request may pass now. In the state half_open the first that asks is the one that tries."""
        if self._opened_at_s is None:
            return
        left_s = self._opened_at_s + self._cooldown_s - self._clock()
        if left_s > 0 or self._is_trying:
            raise SidecarError(
                *(503, "breaker_open"),
                f"The engine failed {self._num_failures} times in a row; it is tried again in {max(left_s, 1):.0f} s.",
                retry_after_s=max(left_s, 1.0),
            )
        self._is_trying = True

    def succeed(self) -> None:
        self._num_failures, self._opened_at_s, self._is_trying = 0, None, False

    def fail(self) -> None:
        self._num_failures += 1
        self._is_trying = False
        if self._num_failures >= self._max_failures:
            self._opened_at_s = self._clock()

    def drop(self) -> None:
        """The request ended without saying anything about the engine: refused (4xx), or its client left."""
        self._is_trying = False
