"""The dynamic grouped convolution around the sublayers of a DFlash2 drafter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.dflash2_config import DFlash2Config
from specpilot.refengine.numerics import Projection
from specpilot_kernels.block_conv import block_conv

__all__ = ["GroupedConv"]

_Array = NDArray[np.float32]
_Places = NDArray[np.int64]


class GroupedConv:
    """Convolution over the rows of blocks, before and after a sublayer; its coefficients come from the
    sublayer's input.

    ``y[i, c] = sum_o (base[side, o, c] + delta[i, side, o, group(c)]) * x[i - o, c]``, where rows before the
    block count as 0. ``places`` are the rows' places in their blocks.
    """

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], name: str) -> None:
        shape = (2, config.conv_kernel_size, config.num_groups, config.conv_group_size)
        self._base: _Array = tensors[f"{name}.base_kernel"].reshape(shape).numpy()
        # A side each: a matrix of its own leaves the rows contiguous for the kernel.
        sides = tensors[f"{name}.kernel_projection.weight"].chunk(2)
        self._deltas = [Projection(side.contiguous()) for side in sides]

    def before(self, x: _Array, places: _Places) -> _Array:
        """Convolve the sublayer's input x (R, H)."""
        return self._convolve(0, x, x, places)

    def after(self, x: _Array, y: _Array, places: _Places) -> _Array:
        """Convolve the sublayer's output y (R, H) with what its input x (R, H) says."""
        return self._convolve(1, x, y, places)

    def _convolve(self, side: int, x: _Array, y: _Array, places: _Places) -> _Array:
        base = self._base[side]
        delta = self._deltas[side].arrays(x).reshape(len(x), *base.shape[:2])
        return block_conv(y, base, delta, places)
