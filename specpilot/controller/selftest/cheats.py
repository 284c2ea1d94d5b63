"""Systems that only look faster. Each names what the refusal must say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from specpilot.controller.measure import NUM_WARM_UP_TOKENS
from specpilot.controller.selftest.world import Stock, World
from specpilot.forcing import arm

__all__ = [
    "CHEATS",
    "CachedAnswers",
    "Cheat",
    "ClockTampering",
    "DevelopmentOnly",
    "EarlyStop",
    "FastCheat",
    "FewerThinkingTokens",
    "LateFault",
    "LogitShortcut",
    "PatchedScorer",
    "PatchedTimer",
    "ShorterOutputs",
    "SlowStock",
    "WarmCache",
    "WarmUpAnswers",
    "patched",
]

_Answer = tuple[tuple[int, ...], str, float]


class Cheat(Stock):
    """Base: honest tokens, as fast as it says.

    Attributes
    ----------
    reasons
        Each is how one of the refusal's reasons must begin.
    is_late
        Whether development is passed and only the sealed final refuses.
    """

    name = ""
    reasons: tuple[str, ...] = ()
    is_late = False


class FastCheat(Cheat):
    """Fast enough to be promoted, were it not for what it does."""

    def __init__(self) -> None:
        super().__init__(1.3)


class CachedAnswers(Cheat):
    """Remembers every answer on disk by its prompt."""

    name, reasons = "cached answers keyed by prompt", ("repeats", "unsteady")

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids, reason, seconds = super().answer(world, prompt_ids, max_new_tokens)
        is_known = prompt_ids in world.disk
        world.disk.add(prompt_ids)
        return ids, reason, seconds / 20.0 if is_known else seconds


class WarmUpAnswers(Cheat):
    """Takes what it is asked in the untimed warm-up for prompts read backwards, and has their answers ready."""

    name, reasons = "answers worked out in the warm-up", ("speed",)

    def start(self, world: World) -> None:
        self._is_ready: set[tuple[int, ...]] = set()

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids, reason, seconds = super().answer(world, prompt_ids, max_new_tokens)
        if max_new_tokens == NUM_WARM_UP_TOKENS:
            self._is_ready |= {prompt_ids, prompt_ids[::-1]}
        return ids, reason, seconds / 20.0 if prompt_ids in self._is_ready else seconds


class EarlyStop(FastCheat):
    """Leaves the slow end of every answer out and calls it finished."""

    name, reasons = "early stop", ("token forcing", "lengths")

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids = super().answer(world, prompt_ids, max_new_tokens)[0]
        ids = ids[: max(2, len(ids) * 6 // 10)]
        return ids, "stop", world.stock_s(len(ids)) / self.speed


class ShorterOutputs(FastCheat):
    """The same, ended properly with end-of-text."""

    name, reasons = "shorter outputs", ("lengths", "token forcing")

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids = super().answer(world, prompt_ids, max_new_tokens)[0]
        ids = (*ids[: max(2, len(ids) * 7 // 10)], world.truth.eos_id)
        return ids, "stop", world.stock_s(len(ids)) / self.speed


class FewerThinkingTokens(FastCheat):
    """Leaves out half of what comes before the end of thinking."""

    name, reasons = "fewer thinking tokens", ("thinking",)

    def __init__(self, end_of_thinking_id: int) -> None:
        super().__init__()
        self._end_id = end_of_thinking_id

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids, reason, _ = super().answer(world, prompt_ids, max_new_tokens)
        if self._end_id in ids:
            end = ids.index(self._end_id)
            ids = ids[: end // 2] + ids[end:]
        return ids, reason, world.stock_s(len(ids)) / self.speed


class ClockTampering(FastCheat):
    """Sets the machine's clock back while it answers."""

    name, reasons = "clock tampering", ("clock",)

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids, reason, seconds = super().answer(world, prompt_ids, max_new_tokens)
        world.clock.real_step_s -= seconds / 2.0
        return ids, reason, seconds


class DevelopmentOnly(Cheat):
    """Knows the development prompts by heart and is stock on everything else."""

    name, reasons = "speed only on development prompts", ("hidden",)

    def __init__(self, known: set[tuple[int, ...]]) -> None:
        super().__init__()
        self._known = known

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids, reason, seconds = super().answer(world, prompt_ids, max_new_tokens)
        return ids, reason, seconds / 1.5 if prompt_ids in self._known else seconds


class SlowStock(Cheat):
    """Once it has run, the control finds the machine slower."""

    name, reasons = "slow stock", ("stock",)

    def start(self, world: World) -> None:
        world.control_slowdown = 1.2


class WarmCache(Cheat):
    """Keeps the prompts' states from start to start, where the control begins cold."""

    name, reasons = "warm cache only for itself", ("unsteady", "repeats")

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids, reason, seconds = super().answer(world, prompt_ids, max_new_tokens)
        is_known = prompt_ids in world.disk
        world.disk.add(prompt_ids)
        return ids, reason, seconds * (0.8 if is_known else 1.0)


class LogitShortcut(FastCheat):
    """A head with a bias on every 7th id: the answers stay fluent, which a task's score does not see."""

    name, reasons = "logit shortcut that keeps accuracy", ("token forcing",)

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self._after = after

    def answer(self, world: World, prompt_ids: tuple[int, ...], max_new_tokens: int) -> _Answer:
        ids = world.truth.biased(prompt_ids, max_new_tokens, self._after)
        reason = "stop" if ids[-1] == world.truth.eos_id else "length"
        return ids, reason, world.stock_s(len(ids)) / self.speed


class LateFault(LogitShortcut):
    """The same, once an answer is longer than development answers get."""

    name, reasons, is_late = "fault after the development limit", ("token forcing",), True


class PatchedTimer(FastCheat):
    """Puts a timer of its own into the controller's process, where one can."""

    name, reasons = "monkeypatched timer", ("clock",)


class PatchedScorer(LogitShortcut):
    """Puts a scorer of its own into the controller's process, where one can."""

    name, reasons = "monkeypatched scorer", ("token forcing: scorer",)


CHEATS: tuple[type[Cheat], ...] = (
    CachedAnswers,
    WarmUpAnswers,
    EarlyStop,
    ShorterOutputs,
    FewerThinkingTokens,
    ClockTampering,
    PatchedTimer,
    PatchedScorer,
    DevelopmentOnly,
    SlowStock,
    WarmCache,
    LogitShortcut,
    LateFault,
)


@contextlib.contextmanager
def patched(cheat: Stock) -> Iterator[None]:
    """What a cheat does to the controller's process; nothing for most."""
    place: Any
    if isinstance(cheat, PatchedTimer):
        place, name, original = time, "clock_gettime_ns", time.clock_gettime_ns
        replacement: Any = lambda clock: original(clock) // 2  # noqa: E731
    elif isinstance(cheat, PatchedScorer):
        place, name, original = arm, "find_events", arm.find_events  # type: ignore[assignment, attr-defined]
        replacement = lambda *arguments: []  # noqa: E731
    else:
        yield
        return
    setattr(place, name, replacement)
    try:
        yield
    finally:
        setattr(place, name, original)
