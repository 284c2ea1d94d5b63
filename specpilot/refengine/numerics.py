"""Matrix products of the two numeric modes.

Both take the same products, which are row invariant by construction. *serve* runs everything around them in the shape
that is fastest for the number of rows at hand, so the last bits of a row may depend on how many rows ride along.
*judge* runs all of it on a tile of a fixed number of rows; :func:`find_invariant_tile` proves at load that on such a
tile a row's result depends on nothing but the row.

The check runs with the threads of the moment. Set them before loading (``specpilot.models.build``) and leave them:
results were the same with 1 and 2 threads wherever tested, but only the checked count is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.errors import EngineError
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm_arrays

__all__ = ["JUDGE_TILES", "Projection", "Rows", "find_invariant_tile", "is_row_invariant", "tiles"]

Rows = Callable[[Tensor], Tensor]
"""A function of rows: (T, width) -> (T, other width)."""

JUDGE_TILES = (16, 8, 1)
"""Row tiles tried in this order. One row at a time is invariant by construction, and slow."""


class Projection:
    """y = x W^T for a fixed W.

    In float32 it is the kernel :mod:`specpilot_kernels.skinny_gemm`: the checkpoint's BF16 numbers are kept as they
    are and widened exactly in registers, which halves the bytes a step reads, and a row's result depends on no other
    row. In float64, which exists for checking, it is a plain product.
    """

    def __init__(self, *weights: Tensor) -> None:
        """Several weights, (N_i, K) each, stand one above the other; BF16 ones count as float32."""
        is_exact = weights[0].dtype == torch.float64
        self.packed = None if is_exact else PackedWeight.pack(*weights)
        self._weight = torch.cat(weights).t().contiguous() if is_exact else None

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weight; float32 weights only."""
        assert self.packed is not None
        return self.packed.memory_bytes

    def arrays(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(T, in) -> (T, out) on arrays, T >= 1; float32 weights only."""
        assert self.packed is not None
        return skinny_gemm_arrays(x, self.packed)

    def __call__(self, x: Tensor) -> Tensor:
        """(T, in) -> (T, out), contiguous; T may be 0."""
        if self.packed is None:
            assert self._weight is not None
            return torch.mm(x, self._weight)
        if not x.shape[0]:
            return x.new_empty(0, self.packed.num_columns)
        return torch.from_numpy(skinny_gemm_arrays(x.contiguous().numpy(), self.packed))


def tiles(x: Tensor, tile: int) -> list[Tensor]:
    """Cut rows into tiles, the last one filled up with zero rows; every tile is contiguous."""
    x = F.pad(x, (0, 0, 0, -x.shape[0] % tile))
    return [part.contiguous() for part in x.split(tile)]


def is_row_invariant(rows: Rows, width: int, tile: int, dtype: torch.dtype, num_draws: int = 2) -> bool:
    """Whether, on ``tile`` rows, the result of a row is bit for bit the same at every index and in any
    company."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_draws):
        x = torch.randn(tile, width, generator=generator, dtype=dtype)
        company = torch.randn(tile, width, generator=generator, dtype=dtype)
        expected = rows(x)
        for shift in range(tile):
            if not torch.equal(rows(x.roll(shift, 0)), expected.roll(shift, 0)):
                return False
            for others in (company, torch.zeros_like(company)):
                mixed = others.clone()
                mixed[shift] = x[0]
                if not torch.equal(rows(mixed)[shift], expected[0]):
                    return False
    return True


def find_invariant_tile(functions: Sequence[tuple[Rows, int]], dtype: torch.dtype) -> int:
    """Largest tile of :data:`JUDGE_TILES` on which every (function, input width) is row invariant."""
    for tile in JUDGE_TILES:
        if all(is_row_invariant(rows, width, tile, dtype) for rows, width in functions):
            return tile
    raise EngineError("no row tile gives repeatable products on this machine; judge mode cannot run here")
