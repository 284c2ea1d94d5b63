"""What an engine tells a recorder after every verify step, so that the step can be replayed without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree

__all__ = ["RecordedTimes", "StepRecorder"]


@dataclass(frozen=True)
class RecordedTimes:
    """Wall clock of a verify step in microseconds, as in :class:`specpilot.engines.base.StepRecord`."""

    draft_us: float
    verify_us: float
    total_us: float


class StepRecorder(Protocol):
    """Takes the verify steps of an engine. Called by the engine's thread alone."""

    def record(
        self,
        request_id: str,
        lattice: Lattice,
        root_id: int,
        tree: DraftTree,
        kept_tokens: Sequence[int],
        times: RecordedTimes,
        *,
        drafter: str,
        position: int,
    ) -> None:
        """One verify step of one request that drafts; called for every such step, whatever N is.

        Parameters
        ----------
        request_id
            Different for every request of the engine's life.
        lattice
            The draft; of depth 0 where the drafter had nothing to propose. Not changed afterwards by the caller.
        root_id, position
            The root and its index in the sequence: the number of committed tokens before it, prompt included.
        tree
            What was verified, the root included; N = 1 verifies the root alone.
        kept_tokens
            The tokens the step emitted, accepted drafts first and the bonus last, before an answer is cut at its end.
        drafter
            Name of the drafter.
        """
        ...
