"""What all targets share: rows of one or several sequences through the layers, in compiled kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.errors import EngineError
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.state import Batch, SequenceState

__all__ = ["LayeredModel", "RowLayer", "TargetOutput"]


@dataclass(frozen=True)
class TargetOutput:
    """Result of a forward over T rows, in their order.

    Attributes
    ----------
    hidden : Tensor, (T, hidden_size)
        After the final norm.
    taps : Tensor, (T, len(taps) * hidden_size)
        Residual stream after each tapped layer, side by side in the order asked for.
    """

    hidden: Tensor
    taps: Tensor


class RowLayer(Protocol):
    """One layer, whatever it mixes with."""

    def arrays(self, x: NDArray[np.float32], batch: Batch) -> None:
        """Advance the batch's rows x, (rows, hidden), in place."""
        ...


class LayeredModel(ABC):
    """The forward of a target. A row's bits depend on it and on its sequence's tokens before it, on nothing else."""

    def __init__(self, layers: Sequence[RowLayer], norm: RmsNorm) -> None:
        """``norm`` is the final one."""
        self._layers, self._norm = layers, norm

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """(T,) int64 -> (T, hidden_size), new memory; RequestError for an id outside the vocabulary."""

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        state: SequenceState,
        *,
        taps: tuple[int, ...] = (),
        parents: NDArray[np.int64] | None = None,
    ) -> TargetOutput:
        """Run T tokens of one sequence that follow the committed ones, each seeing all before it.

        The rows stay pending until ``state.commit``.

        Parameters
        ----------
        ids : Tensor, (T,), int64
            T >= 1; together with the committed tokens at most ``state.max_tokens``.
        state
            Made by :meth:`new_state` of this model, nothing pending.
        taps
            Layers, counted from 0, whose output is wanted.
        parents
            Makes the rows a tree, in which each sees its ancestors alone: ``SequenceState.open_rows``.
        """
        rows = self.embed(ids)
        self._check_taps(taps)
        state.open_rows(ids.shape[0], parents=parents)
        return self._run(rows, [state], taps)

    @torch.inference_mode()
    def forward_batch(
        self, ids: Tensor, states: Sequence[SequenceState], *, taps: tuple[int, ...] = ()
    ) -> TargetOutput:
        """Run the opened rows of several sequences together; each row gets the bits it has alone.

        Memory for activations grows with the number of rows; the caller bounds it.

        Parameters
        ----------
        ids : Tensor, (T,), int64
            Tokens of all sequences, one sequence behind the other.
        states
            Different sequences, whose rows were opened by ``SequenceState.open_rows``. They stay pending until
            ``commit`` or :func:`specpilot.refengine.state.commit_rows`.
        taps
            As for :meth:`forward`, of all rows.
        """
        num_rows = sum(state.num_pending for state in states)
        if ids.shape != (num_rows,) or not all(state.num_pending for state in states):
            raise EngineError(
                f"ids: got {ids.shape[0]}, expected {num_rows}, the opened rows of all sequences"
            )
        rows = self.embed(ids)
        self._check_taps(taps)
        return self._run(rows, states, taps)

    def _run(self, rows: Tensor, states: Sequence[SequenceState], taps: tuple[int, ...]) -> TargetOutput:
        batch = Batch(states)
        x: NDArray[np.float32] = rows.numpy()
        tapped: dict[int, NDArray[np.float32]] = {}
        for number, layer in enumerate(self._layers):
            layer.arrays(x, batch)
            if number in taps:
                tapped[number] = x.copy()
        joined = np.concatenate([tapped[tap] for tap in taps], 1) if taps else x[:, :0]
        return TargetOutput(torch.from_numpy(self._norm.arrays(x)), torch.from_numpy(joined))

    def _check_taps(self, taps: tuple[int, ...]) -> None:
        for tap in taps:
            if not 0 <= tap < len(self._layers):
                raise EngineError(f"taps: got layer {tap}, expected 0 to {len(self._layers) - 1}")
