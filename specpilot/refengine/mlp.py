"""The gated feed-forward block."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.numerics import Projection, Rows
from specpilot_kernels.silu_mul import silu_mul

__all__ = ["Mlp"]


class Mlp:
    """down(silu(gate(x)) * up(x)), gate and up in one product."""

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor) -> None:
        self._inner, self._hidden = gate.shape
        self._gate_up = Projection(torch.cat((gate, up)))
        self._down = Projection(down)

    def __call__(self, x: Tensor) -> Tensor:
        gate_up = self._gate_up(x)
        return self._down(F.silu(gate_up[:, : self._inner]).mul_(gate_up[:, self._inner :]))

    def arrays(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same in compiled kernels: a row's bits depend on the row alone."""
        return self._down.arrays(silu_mul(self._gate_up.arrays(x)))

    def row_functions(self) -> list[tuple[Rows, int]]:
        return [(self, self._hidden)]
