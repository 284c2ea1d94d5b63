"""The gated feed-forward block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot_kernels.gelu_mul import gelu_mul
from specpilot_kernels.layer_parts import feed_forward
from specpilot_kernels.silu_mul import silu_mul

__all__ = ["Mlp"]


class Mlp:
    """down(activation(gate(x)) * up(x)), gate and up in one product."""

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor, *, has_gelu: bool = False) -> None:
        """The activation is SiLU, or the tanh form of GELU."""
        self._gate_up = Projection(gate, up)
        self._down = Projection(down)
        self._has_gelu = has_gelu

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._gate_up.memory_bytes + self._down.memory_bytes

    def add_to(self, x: NDArray[np.float32], norm: RmsNorm) -> None:
        """Add the block's output for normed rows to x, (rows, hidden): ``x += arrays(norm.arrays(x))``."""
        parts = (self._gate_up, self._down)
        if self._has_gelu or not all(
            isinstance(part, Projection) and part.packed.element_type == "bfloat16" for part in parts
        ):
            x += self.arrays(norm.arrays(x))
        else:
            feed_forward(x, norm.scale_array, norm.eps, self._gate_up.packed, self._down.packed)

    def arrays(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(rows, hidden) -> (rows, hidden): a row's bits depend on the row alone."""
        gated = gelu_mul if self._has_gelu else silu_mul
        return self._down.arrays(gated(self._gate_up.arrays(x)))
