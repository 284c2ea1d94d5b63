"""Watching and holding a real engine between its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from specpilot.engines.base import Chunk
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.state import SequenceState

__all__ = ["Probe", "close", "tokens"]

PATIENCE_S = 60.0


class Probe:
    """Stands before the target's forward of an engine.

    Attributes
    ----------
    steps
        Of every step, how many rows each sequence ran, by the identity of its state.
    before_step
        Called with the number of steps done, on the engine's thread, before each forward.
    """

    def __init__(self, engine: ReferenceEngine) -> None:
        self.steps: list[dict[int, int]] = []
        self.before_step: Callable[[int], None] = lambda num_done: None
        self._target, self._forward = engine.target, engine.target.forward_batch
        self._states: list[SequenceState] = []  # Kept, so that identities stay unique.
        engine.target.forward_batch = self._watched  # type: ignore[method-assign]

    def remove(self) -> None:
        self._target.forward_batch = self._forward  # type: ignore[method-assign]

    def _watched(self, ids: Tensor, states: Sequence[SequenceState], **options: Any) -> Any:
        self.before_step(len(self.steps))
        self._states += states
        self.steps.append({id(state): state.num_pending for state in states})
        return self._forward(ids, states, **options)


def tokens(chunks: Sequence[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def close(answer: object) -> None:
    answer.close()  # type: ignore[attr-defined]
