"""Faults in what a commit leaves behind: states of Gated DeltaNet layers that are not those of the emitted tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.state import SequenceState

__all__ = ["SiblingState", "StaleWindow"]


class _EveryNth(SequenceState):
    """Counts commits that keep a draft, and spoils every ``period``-th of them."""

    def __init__(self, config: TargetConfig, max_tokens: int, period: int) -> None:
        super().__init__(config, max_tokens)
        self._period, self._count = period, 0

    def _is_due(self, path: NDArray[np.int64]) -> bool:
        if self._is_decided or len(path) < 2:
            return False
        self._count += 1
        return self._count % self._period == 0


class SiblingState(_EveryNth):
    """Keys and values of the accepted path, recurrent state of a path that ends in a sibling of its last node."""

    _true_path: NDArray[np.int64] | None = None

    def path_of(self, kept: int | NDArray[np.int64]) -> NDArray[np.int64]:
        path = super().path_of(kept)
        self._true_path = None
        if self._tree is None or not self._is_due(path):
            return path
        parents = np.asarray(self._tree.parents)
        siblings = np.flatnonzero(parents == parents[path[-1]])
        others = siblings[siblings != path[-1]]
        if not len(others):
            return path
        self._true_path = path
        return np.append(path[:-1], others[0])

    def close_rows(self, path: NDArray[np.int64]) -> None:
        super().close_rows(path if self._true_path is None else self._true_path)


class StaleWindow(_EveryNth):
    """The short convolution's window stays what it was before the commit."""

    _window: NDArray[np.float32] | None = None

    def path_of(self, kept: int | NDArray[np.int64]) -> NDArray[np.int64]:
        path = super().path_of(kept)
        is_due = self.gdn is not None and self._is_due(path)
        self._window = self.gdn.window.copy() if is_due and self.gdn is not None else None
        return path

    def close_rows(self, path: NDArray[np.int64]) -> None:
        if self._window is not None and self.gdn is not None:
            self.gdn.window[:] = self._window
        super().close_rows(path)
