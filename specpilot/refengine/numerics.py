"""Matrix products of the two numeric modes.

Both modes run the target in the same compiled kernels, in which a row's result depends on the row and on the tokens of
its sequence before it, never on the rows beside it, bit for bit. So both give the same tokens in any batch, with and
without speculation. What *serve* may do otherwise is the drafters' business, whose proposals the target verifies.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.norm import RmsNorm
from specpilot_kernels.layer_parts import norm_project, project_add
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm_arrays

__all__ = ["Projection"]


class Projection:
    """y = x W^T for a fixed W: the kernel :mod:`specpilot_kernels.skinny_gemm`.

    Numbers that BF16 holds, as a checkpoint's, are kept as BF16 and widened exactly in registers, which halves the
    bytes a step reads. A row's result depends on no other row.
    """

    def __init__(self, *weights: Tensor) -> None:
        """Several weights, (N_i, K) each, stand one above the other; BF16 ones count as float32."""
        self.packed = PackedWeight.pack(*weights)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weight."""
        return self.packed.memory_bytes

    def arrays(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(T, in) -> (T, out) on arrays, T >= 1."""
        return skinny_gemm_arrays(x, self.packed)

    def of_normed(self, x: NDArray[np.float32], norm: RmsNorm) -> NDArray[np.float32]:
        """The product of normed rows, (T, in) -> (T, out): ``arrays(norm.arrays(x))``, in one call where it can be."""
        if self.packed.element_type == "bfloat16":
            return norm_project(x, norm.scale_array, norm.eps, self.packed)
        return self.arrays(norm.arrays(x))

    def add_to(self, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        """``x += arrays(y)``, x (T, out) and y (T, in)."""
        if self.packed.element_type == "bfloat16":
            project_add(x, y, self.packed)
        else:
            x += self.arrays(y)

    def __call__(self, x: Tensor) -> Tensor:
        """(T, in) -> (T, out), contiguous; T may be 0."""
        if not x.shape[0]:
            return x.new_empty(0, self.packed.num_columns)
        return torch.from_numpy(skinny_gemm_arrays(x.contiguous().numpy(), self.packed))
