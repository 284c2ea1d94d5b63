"""The controller's own clock.

Wall time is read here and nowhere else, outside the systems that are measured: what a system says about its own speed
is not read at all. The reader is taken at import, before any other code could put something in its place, and each
measurement checks that nothing did and that no clock of the machine was set meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Protocol

__all__ = ["Clock", "ClockMark", "SystemClock"]

_read_ns = time.clock_gettime_ns
_MAX_DRIFT = 0.005
_MAX_STEP_S = 0.05


@dataclass(frozen=True)
class ClockMark:
    """The same moment on three clocks, nanoseconds: raw hardware, monotonic, and of the day."""

    raw: int
    monotonic: int
    real: int


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def mark(self) -> ClockMark: ...

    def fault_since(self, mark: ClockMark) -> str | None:
        """Why times since ``mark`` cannot be believed; None if they can."""
        ...


class SystemClock:
    """CLOCK_MONOTONIC_RAW, which no time service slews and no user can set."""

    def now_s(self) -> float:
        return _read_ns(time.CLOCK_MONOTONIC_RAW) / 1e9

    def mark(self) -> ClockMark:
        return ClockMark(
            *(_read_ns(one) for one in (time.CLOCK_MONOTONIC_RAW, time.CLOCK_MONOTONIC, time.CLOCK_REALTIME))
        )

    def fault_since(self, mark: ClockMark) -> str | None:
        if time.clock_gettime_ns is not _read_ns or not isinstance(_read_ns, BuiltinFunctionType):
            return "clock: the timer of this process was replaced"
        now = self.mark()
        raw = (now.raw - mark.raw) / 1e9
        for name in ("monotonic", "real"):
            other = (getattr(now, name) - getattr(mark, name)) / 1e9
            if abs(other - raw) > _MAX_STEP_S + _MAX_DRIFT * raw:
                return f"clock: the {name} clock went {other:.3f} s where the hardware's went {raw:.3f} s; it was set"
        return None
