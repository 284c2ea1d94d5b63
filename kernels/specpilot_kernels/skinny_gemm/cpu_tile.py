"""The inner loops of the product: a tile of outputs that stays in vector registers while k runs.

All tiles have 8 AVX2 registers of sums: fewer, and an addition waits for the one before. For every output of a tile,

    for block in range(0, K, 64):
        sum = 0
        for k in range(block, min(block + 64, K)): sum = fma(x[row, k], W[column, k], sum)
        y = 0 + sum if block == 0 else y + sum

Nothing is checked. The panels behind the tile's are fetched into the cache meanwhile: measured, that makes 8 rows 20%
faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_vector import add, fma, load, prefetch, splat, store
from specpilot_kernels.skinny_gemm.layout import PANEL_COLUMNS

__all__ = ["K_BLOCK", "tile_1", "tile_2", "tile_4"]

K_BLOCK = 64
"""Products that are added up from zero before the sum joins the ones before."""


@inlined
def _join(y: Any, offset: int, block: int, value: Any) -> None:
    before = splat(np.float32(0)) if block == 0 else load(y, offset)
    store(y, offset, add(before, value))


@inlined
def tile_4(x: Any, row: int, panels: Any, panel: int, y: Any, y_row: int, y_column: int) -> None:
    """Four rows of x times one panel into four rows of y, from ``y_column`` on."""
    num_inputs, width = x.shape[1], y.shape[1]
    start, size = panel * num_inputs * PANEL_COLUMNS, num_inputs * PANEL_COLUMNS
    offset = y_row * width + y_column
    for block in range(0, num_inputs, K_BLOCK):
        a = b = c = d = splat(np.float32(0))
        for k in range(block, min(block + K_BLOCK, num_inputs)):
            at = start + k * PANEL_COLUMNS
            weights = load(panels, at)
            prefetch(panels, at + size)
            a = fma(splat(x[row, k]), weights, a)
            b = fma(splat(x[row + 1, k]), weights, b)
            c = fma(splat(x[row + 2, k]), weights, c)
            d = fma(splat(x[row + 3, k]), weights, d)
        _join(y, offset, block, a)
        _join(y, offset + width, block, b)
        _join(y, offset + 2 * width, block, c)
        _join(y, offset + 3 * width, block, d)


@inlined
def tile_2(x: Any, row: int, panels: Any, panel: int, y: Any, y_row: int, y_column: int) -> None:
    """Two rows times two neighbouring panels."""
    num_inputs, width = x.shape[1], y.shape[1]
    start, size = panel * num_inputs * PANEL_COLUMNS, num_inputs * PANEL_COLUMNS
    offset = y_row * width + y_column
    for block in range(0, num_inputs, K_BLOCK):
        a = b = c = d = splat(np.float32(0))
        for k in range(block, min(block + K_BLOCK, num_inputs)):
            at = start + k * PANEL_COLUMNS
            left, right = load(panels, at), load(panels, at + size)
            prefetch(panels, at + 2 * size)
            prefetch(panels, at + 3 * size)
            upper, lower = splat(x[row, k]), splat(x[row + 1, k])
            a = fma(upper, left, a)
            b = fma(upper, right, b)
            c = fma(lower, left, c)
            d = fma(lower, right, d)
        _join(y, offset, block, a)
        _join(y, offset + PANEL_COLUMNS, block, b)
        _join(y, offset + width, block, c)
        _join(y, offset + width + PANEL_COLUMNS, block, d)


@inlined
def tile_1(x: Any, row: int, panels: Any, panel: int, y: Any, y_row: int, y_column: int) -> None:
    """One row times four neighbouring panels."""
    num_inputs, width = x.shape[1], y.shape[1]
    start, size = panel * num_inputs * PANEL_COLUMNS, num_inputs * PANEL_COLUMNS
    offset = y_row * width + y_column
    for block in range(0, num_inputs, K_BLOCK):
        a = b = c = d = splat(np.float32(0))
        for k in range(block, min(block + K_BLOCK, num_inputs)):
            at = start + k * PANEL_COLUMNS
            x_k = splat(x[row, k])
            a = fma(x_k, load(panels, at), a)
            b = fma(x_k, load(panels, at + size), b)
            c = fma(x_k, load(panels, at + 2 * size), c)
            d = fma(x_k, load(panels, at + 3 * size), d)
            prefetch(panels, at + 4 * size)
            prefetch(panels, at + 5 * size)
            prefetch(panels, at + 6 * size)
            prefetch(panels, at + 7 * size)
        _join(y, offset, block, a)
        _join(y, offset + PANEL_COLUMNS, block, b)
        _join(y, offset + 2 * PANEL_COLUMNS, block, c)
        _join(y, offset + 3 * PANEL_COLUMNS, block, d)
