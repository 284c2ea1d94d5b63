"""Limits of a key: requests and tokens a minute, as buckets that refill steadily. Kept in memory: a new process
starts with full buckets."""

from __future__ import annotations

import time
from collections.abc import Callable

from specpilot_service.sidecar.errors import too_many

__all__ = ["Bucket", "KeyLimiter"]


class Bucket:
    """Holds up to ``per_minute`` and refills ``per_minute / 60`` a second; may be taken below zero."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self._clock = per_minute, clock
        self._level, self._at_s = float(per_minute), clock()

    def wait_s(self, amount: float) -> float:
        """Seconds until the level is at least ``amount``; 0 if it is now."""
        now_s = self._clock()
        refilled = self._level + (now_s - self._at_s) * self.per_minute / 60
        self._level, self._at_s = min(float(self.per_minute), refilled), now_s
        return max(0.0, (amount - self._level) * 60 / self.per_minute)

    def take(self, amount: float) -> None:
        self.wait_s(0)
        self._level -= amount


class KeyLimiter:
    """None: no limit. Tokens are known only at an answer's end, so they are taken then; a key whose bucket is empty
    waits until it has refilled above zero."""

    def __init__(
        self,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = None if requests_per_minute is None else Bucket(requests_per_minute, clock)
        self._tokens = None if tokens_per_minute is None else Bucket(tokens_per_minute, clock)

    def admit(self) -> None:
        """Take one request, or raise 429 with the seconds to wait."""
        for bucket, what in ((self._requests, "requests"), (self._tokens, "tokens")):
            if bucket is not None and (wait_s := bucket.wait_s(1)) > 0:
                raise too_many(
                    "rate_limited",
                    f"This key may use {bucket.per_minute} {what} a minute and has used them; "
                    f"try again in {wait_s:.0f} s or ask an admin for a higher limit.",
                    wait_s,
                )
        if self._requests is not None:
            self._requests.take(1)

    def take_tokens(self, num_tokens: int) -> None:
        if self._tokens is not None:
            self._tokens.take(num_tokens)
