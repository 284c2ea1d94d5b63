"""A simulated box: real answers, simulated speed, a clock that only answers move.

The controller that runs here is the real one, with its real statistics, checks, ledger and token forcing; it reads the
box's clock as it would read the machine's. Only how long a token takes is made up, so that a cheat is as fast as it
claims and the test takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from specpilot.controller.clock import ClockMark, SystemClock
from specpilot.controller.selftest.truth import Truth
from specpilot.controller.slots.base import Arm, Endpoint, Piece, System

__all__ = ["Behaviour", "Stock", "World", "WorldClock", "WorldSlot"]

_PREFILL_S = 0.010
_TOKEN_S = 0.002
_SLOWS_DOWN_OVER = 400


class WorldClock(SystemClock):
    """Time passes when answers say so. ``real_step_s`` is how far somebody set the clock of the day."""

    def __init__(self) -> None:
        self.seconds, self.real_step_s = 1000.0, 0.0

    def now_s(self) -> float:
        return self.seconds

    def mark(self) -> ClockMark:
        now = int(self.seconds * 1e9)
        return ClockMark(now, now, now + int(self.real_step_s * 1e9))


@dataclass
class World:
    """The box.

    Attributes
    ----------
    run_sd, request_sd
        Noise of a whole pass and of one answer, log units.
    disk
        What a system keeps from one start to the next.
    control_slowdown
        Factor on the control's times; a cheat may raise it.
    """

    truth: Truth
    clock: WorldClock = field(default_factory=WorldClock)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(17))
    run_sd: float = 0.001
    request_sd: float = 0.004
    disk: set[tuple[int, ...]] = field(default_factory=set)
    control_slowdown: float = 1.0

    def stock_s(self, num_tokens: int) -> float:
        """Noiseless time of an answer on stock: prefill, and tokens that get slower as the answer grows."""
        return _PREFILL_S + _TOKEN_S * num_tokens * (1.0 + num_tokens / _SLOWS_DOWN_OVER / 2.0)


class Behaviour(Protocol):
    """What a system does with a prompt: its tokens, finish reason, and how long it takes (seconds, noiseless)."""

    def start(self, world: World) -> None:
        """Each time the system is started."""
        ...

    def answer(
        self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int
    ) -> tuple[tuple[int, ...], str, float]: ...


class Stock:
    """Honest, ``speed`` times as fast as stock."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def start(self, world: World) -> None:
        """Keeps nothing."""

    def answer(
        self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int
    ) -> tuple[tuple[int, ...], str, float]:
        ids = world.truth.answer(prompt_ids, max_new_tokens)
        reason = "stop" if ids[-1] == world.truth.eos_id else "length"
        return ids, reason, world.stock_s(len(ids)) / self.speed


class WorldSlot:
    """The box's one slot. Systems are named by their first argument."""

    is_isolated = False

    def __init__(self, world: World, behaviours: Mapping[str, Behaviour], name: str = "world") -> None:
        self.name, self._world, self._behaviours = name, world, behaviours

    @contextmanager
    def run(self, system: System, arm: Arm) -> Iterator[Endpoint]:
        behaviour = self._behaviours[system.name]
        behaviour.start(self._world)
        shared = math.exp(self._world.generator.normal(0.0, self._world.run_sd))
        yield _WorldEndpoint(
            self._world, behaviour, shared * (self._world.control_slowdown if arm == "control" else 1.0)
        )

    def environment(self) -> Mapping[str, str]:
        return {"box": "simulated"}

    def notes(self) -> Mapping[str, float]:
        return {"simulated_s": self._world.clock.seconds}


class _WorldEndpoint:
    def __init__(self, world: World, behaviour: Behaviour, factor: float) -> None:
        self._world, self._behaviour, self._factor = world, behaviour, factor

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Piece]:
        world = self._world
        ids, reason, seconds = self._behaviour.answer(world, tuple(prompt_ids), max_new_tokens)
        noise = math.exp(world.generator.normal(0.0, world.request_sd))
        world.clock.seconds += seconds * self._factor * noise
        yield Piece(ids, reason)
