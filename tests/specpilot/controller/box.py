"""A controller over made-up answers: no engine, simulated time, token forcing that says what the test wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from specpilot.controller.controller import Controller
from specpilot.controller.ledger import Ledger
from specpilot.controller.measure import Measured
from specpilot.controller.measures import Judgement, Measures
from specpilot.controller.selftest.world import Stock, World, WorldSlot
from specpilot.controller.slots.base import System
from specpilot.controller.trial import TrialPlan
from specpilot.requests.sets import Prompt

__all__ = ["BEST", "STOCK", "Box"]

STOCK, BEST = System("stock"), System("fast", ("fast",))
EOS = 7


class Box:
    """``fast`` is 1.2 times stock, ``faster`` 1.5 times. ``now`` and ``environment`` may be moved."""

    def __init__(self, folder: Path, *, num_slots: int = 1, passed: bool | None = True) -> None:
        truth: Any = SimpleNamespace(
            eos_id=EOS,
            answer=lambda prompt, most: tuple([*range(10, 10 + min(most - 1, 20 + prompt[0])), EOS]),
        )
        self.world = World(truth)
        self.environment = {"driver": "1"}
        self.passed = passed
        self.seconds = 0.0
        self.folder = folder
        behaviours = {"stock": Stock(), "fast": Stock(1.2), "faster": Stock(1.5), "null": Stock()}
        slots = tuple(WorldSlot(self.world, behaviours, f"slot {index}") for index in range(num_slots))
        self.measures = Measures(
            slots=slots,
            development=self._plan("development", 8),
            hidden=self._plan("hidden", 4),
            sealed=self._plan("sealed", 4),
            audit=self._audit,
            clock=self.world.clock,
            environment=lambda: self.environment,
            num_null_trials=6,
        )
        self.controller = self.restart()

    def restart(self) -> Controller:
        return Controller(Ledger(self.folder / "ledger"), self.measures, now=self._clock())

    def _clock(self) -> Callable[[], datetime]:
        return lambda: datetime.fromtimestamp(datetime.now(UTC).timestamp() + self.seconds, UTC)

    def _plan(self, name: str, count: int) -> TrialPlan:
        prompts = [
            Prompt(f"{name}/{benchmark}/{index}", benchmark, 1, (index + 1, number, len(name)))
            for number, benchmark in enumerate(("a", "b"))
            for index in range(count)
        ]
        return TrialPlan(tuple(prompts), 64)

    def _audit(self, candidate: Sequence[Measured], stock: Sequence[Measured], most: int) -> Judgement:
        assert [one.key for one in candidate] == [one.key for one in stock]
        return Judgement(self.passed, () if self.passed else ("made up",), {})

    def promote(self, system: System, direction: str = "d") -> dict[str, Any]:
        paired = self.controller.pair("agent", direction, system)
        self.controller.check("agent", paired["attempt_id"])
        return self.controller.promote("agent", paired["attempt_id"])
