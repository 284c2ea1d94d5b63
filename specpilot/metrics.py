"""Acceptance statistics over step records, in the definitions the whole product uses."""

from __future__ import annotations

from collections.abc import Iterable

from specpilot.engines.base import StepRecord

__all__ = ["AcceptCounter"]


class AcceptCounter:
    """Counts what verify steps accepted.

    ``tau`` is the accept length: committed tokens a step, bonus included, before truncation at a stop. Not
    thread safe; one counter belongs to one reader of chunks.
    """

    def __init__(self, steps: Iterable[StepRecord] = ()) -> None:
        self.num_steps = 0
        self.num_drafted = 0
        self.num_correct_drafts = 0
        # _num_reaching[i] counts the steps whose first i + 1 drafts were all accepted.
        self._num_reaching: list[int] = []
        for step in steps:
            self.add(step)

    def add(self, step: StepRecord) -> None:
        self.num_steps += 1
        self.num_drafted += step.num_drafted
        self.num_correct_drafts += step.num_correct_drafts
        missing = max(step.depth, step.num_correct_drafts) - len(self._num_reaching)
        self._num_reaching.extend([0] * missing)
        for index in range(step.num_correct_drafts):
            self._num_reaching[index] += 1

    @property
    def tau(self) -> float | None:
        """``mean(num_correct_drafts) + 1``; None without steps."""
        return None if self.num_steps == 0 else 1.0 + self.num_correct_drafts / self.num_steps

    @property
    def accept_by_position(self) -> tuple[float, ...]:
        """Share of all steps whose first i drafts were accepted, i = 1, 2, ...; the sum is ``tau - 1``."""
        return tuple(count / self.num_steps for count in self._num_reaching)
