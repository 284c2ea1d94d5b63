"""The product on the CPU. Importing this module compiles it for BF16 weights.

Every output is one sum in a fixed order (:mod:`specpilot_kernels.skinny_gemm.cpu_tile`). No number of
rows, row index, tile shape or number of threads enters into it, so a row's result is bit for bit the same in any
company; and as fused multiply-add and addition are exactly defined, on any machine. Summing in blocks also makes
the result up to three times as accurate as one long chain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_pool import job_of, run_parts
from specpilot_kernels.cpu_vector import IS_WIDE
from specpilot_kernels.skinny_gemm.cpu_tile import tile_1, tile_2, tile_4
from specpilot_kernels.skinny_gemm.cpu_wide_tile import (
    wide_tile_1,
    wide_tile_2,
    wide_tile_3,
    wide_tile_4,
    wide_tile_5,
    wide_tile_6,
    wide_tile_7,
    wide_tile_8,
)
from specpilot_kernels.skinny_gemm.layout import GROUP_PANELS, PANEL_COLUMNS

__all__ = ["GROUP_COLUMNS", "ROW_CHUNK", "compile_float32", "compile_int8", "multiply_bfloat16"]

GROUP_COLUMNS = GROUP_PANELS * PANEL_COLUMNS
ROW_CHUNK = 64
"""Rows that go through all panels before the next ones do, so that they stay in the second-level cache."""
_TILE_ROWS = 8
# Parts of a product: few enough to cost little, enough for the last ones to end at about the same time.
_MOST_PARTS = 16


@inlined
def _multiply_narrow(x: Any, panels: Any, y: Any, first: int, last: int) -> None:
    """Columns of the panel groups ``first`` to ``last - 1`` of the product."""
    num_rows, num_columns = y.shape
    # Tiles of a group that is not full write here, for they write all of its columns.
    edge = np.empty((ROW_CHUNK if last * GROUP_COLUMNS > num_columns else 0, GROUP_COLUMNS), np.float32)
    for start in range(0, num_rows, ROW_CHUNK):
        end = min(start + ROW_CHUNK, num_rows)
        for group in range(first, last):
            column = group * GROUP_COLUMNS
            if column + GROUP_COLUMNS <= num_columns:
                out, shift, out_column = y, 0, column
            else:
                out, shift, out_column = edge, start, 0
            panel = group * GROUP_PANELS
            row = end - (end - start) % 4
            for p in range(GROUP_PANELS):
                for r in range(start, row, 4):
                    tile_4(x, r, panels, panel + p, out, r - shift, out_column + p * PANEL_COLUMNS)
            if end - row >= 2:
                for p in range(0, GROUP_PANELS, 2):
                    tile_2(x, row, panels, panel + p, out, row - shift, out_column + p * PANEL_COLUMNS)
                row += 2
            if row < end:
                tile_1(x, row, panels, panel, out, row - shift, out_column)
            if column + GROUP_COLUMNS > num_columns:
                for r in range(end - start):
                    for n in range(num_columns - column):
                        y[start + r, column + n] = edge[r, n]


@inlined
def _transpose(x: Any, out: Any) -> None:
    """Rows of every tile as its loop reads them; tiles stand one behind the other, as their rows do in x."""
    num_rows, num_inputs = x.shape
    row = 0
    while row < num_rows:
        count = min(_TILE_ROWS, num_rows - row)
        at = row * num_inputs
        for i in range(count):
            for k in range(num_inputs):
                out[at + k * count + i] = x[row + i, k]
        row += count


@inlined
def _multiply_wide(x: Any, panels: Any, y: Any, first: int, last: int) -> None:
    """Columns of the panel groups ``first`` to ``last - 1`` of the product; x is :func:`_transpose`'s."""
    num_rows, num_inputs = y.shape[0], panels.shape[1]
    for start in range(0, num_rows, ROW_CHUNK):
        end = min(start + ROW_CHUNK, num_rows)
        whole = end - (end - start) % _TILE_ROWS
        for group in range(first, last):
            panel = group * GROUP_PANELS
            for p in range(panel, panel + GROUP_PANELS, 2):
                for r in range(start, whole, _TILE_ROWS):
                    wide_tile_8(x, r * num_inputs, panels, p, y, r)
            rest, at = end - whole, whole * num_inputs
            if rest == 1:
                wide_tile_1(x, at, panels, panel, y, whole)
            elif rest == 2:
                wide_tile_2(x, at, panels, panel, y, whole)
            elif rest == 3:
                wide_tile_3(x, at, panels, panel, y, whole)
            elif rest > 3:
                for p in range(panel, panel + GROUP_PANELS, 2):
                    if rest == 4:
                        wide_tile_4(x, at, panels, p, y, whole)
                    elif rest == 5:
                        wide_tile_5(x, at, panels, p, y, whole)
                    elif rest == 6:
                        wide_tile_6(x, at, panels, p, y, whole)
                    else:
                        wide_tile_7(x, at, panels, p, y, whole)


_multiply_groups = _multiply_wide if IS_WIDE else _multiply_narrow


@inlined
def _multiply_part(part: int, x: Any, panels: Any, y: Any, num_parts: int) -> None:
    num_groups = panels.shape[0] // GROUP_PANELS
    _multiply_groups(x, panels, y, num_groups * part // num_parts, num_groups * (part + 1) // num_parts)


def _compile(element: str) -> Callable[..., None]:
    """The kernel for panels of one element type."""

    @kernel(f"void(f4[:,::1], {element}[:,:,::1], f4[:,::1], i8)")
    def multiply(x: Any, panels: Any, y: Any, pool: int) -> None:
        """y = x W^T, parts of neighbouring panels for whoever takes them; ``pool`` is of :mod:`cpu_pool`."""
        if IS_WIDE:
            rows = np.empty(x.size, np.float32)
            _transpose(x, rows)
        else:
            rows = x
        num_parts = min(panels.shape[0] // GROUP_PANELS, _MOST_PARTS) if pool else 1
        run_parts(pool, job_of(_multiply_part, (rows, panels, y, num_parts)), num_parts)

    return multiply


multiply_bfloat16 = _compile("u2")


@functools.cache
def compile_float32() -> Callable[..., None]:
    """The kernel for float32 panels, compiled on the first call: few models need it."""
    return _compile("f4")


@functools.cache
def compile_int8() -> Callable[..., None]:
    """The kernel for int8 panels (:mod:`specpilot_kernels.q_weights`), compiled on the first call."""
    return _compile("i1")
