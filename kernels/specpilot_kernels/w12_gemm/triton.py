"""The product in Triton: for GPUs without a kernel of their own, and a second opinion for those with one.

A program has 32 rows of W and all of K. Words of the three planes become codes by the masks and rotations of
:mod:`specpilot_kernels.w12.layout`, and are brought into rows and columns by a permutation of their dimensions. Every
escape of a record is put in its place before the product, so exactly the checkpoint's numbers are multiplied.

With ``TRITON_INTERPRET=1`` in the environment before this module is imported the same source runs on the CPU.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12.layout import MASKS, RECORD_COLUMNS, RECORD_ROWS, RECORD_WORDS
from specpilot_kernels.w12_gemm.arguments import check_rows

__all__ = ["MAX_ROWS", "w12_gemm_triton"]

MAX_ROWS = 64

_WARPS = 2
"""Of a record's eight slices of 16 rows, those of one program."""

_IS_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"


def w12_gemm_triton(x: Tensor, weight: DeviceW12) -> Tensor:
    """y = x W^T as :func:`specpilot_kernels.w12_gemm.w12_gemm`: sums are float32, K ascending.

    Parameters
    ----------
    x : Tensor, bfloat16, (M, K), contiguous, on the weight's device
        1 to ``MAX_ROWS`` rows; K a multiple of 8.

    Returns
    -------
    Tensor, bfloat16, (M, N)

    Raises
    ------
    ValueError
        A shape, dtype, stride or device is not as stated.
    """
    check_rows(x, weight.shape, weight.records.device, MAX_ROWS)
    y: Tensor = _product(
        x, weight.records, weight.bases, weight.escapes, weight.record_starts, weight.shape[0]
    )
    return y


@custom_op("specpilot::w12_gemm_triton", mutates_args=())
def _product(
    x: Tensor, records: Tensor, bases: Tensor, escapes: Tensor, record_starts: Tensor, num_columns: int
) -> Tensor:
    # The interpreter cuts float32 to BF16 instead of rounding it.
    out = x.new_empty(x.shape[0], num_columns, dtype=torch.float32 if _IS_INTERPRETED else x.dtype)
    grid = (triton.cdiv(num_columns, 16 * _WARPS),)
    _kernel[grid](
        x,
        records,
        bases,
        escapes,
        record_starts,
        out,
        x.shape[0],
        num_columns,
        x.shape[1],
        ROWS=max(16, triton.next_power_of_2(x.shape[0])),
        WARPS=_WARPS,
        RECORD_ROWS=RECORD_ROWS,
        COLUMNS=RECORD_COLUMNS,
        WORDS=RECORD_WORDS,
        MASK_A=MASKS[0] - 2**32,  # as int32
        MASK_E=MASKS[1],
        MASK_B=MASKS[2],
        IS_INTERPRETED=_IS_INTERPRETED,
        num_warps=4,
    )
    return out.to(x.dtype)


@_product.register_fake
def _(
    x: Tensor, records: Tensor, bases: Tensor, escapes: Tensor, record_starts: Tensor, num_columns: int
) -> Tensor:
    return x.new_empty(x.shape[0], num_columns)


@triton.jit
def _rotate_left(words, count: tl.constexpr):
    """By 0 to 12 bits. Two shifts to the right, because one by 32 bits is undefined."""
    unsigned = words.to(tl.uint32, bitcast=True)
    return ((unsigned << count) | (unsigned >> (31 - count) >> 1)).to(tl.int32, bitcast=True)


@triton.jit
def _register(a, e, b, R: tl.constexpr, MASK_A: tl.constexpr, MASK_E: tl.constexpr, MASK_B: tl.constexpr):
    """Two codes of every word, (words, 2)."""
    codes = (
        (_rotate_left(a, 4 * R) & MASK_A)
        | (_rotate_left(e, 4 * R) & MASK_E)
        | (_rotate_left(b, 4 * R) & MASK_B)
    )
    return tl.join(codes & 0xFFFF, (codes >> 16) & 0xFFFF)


@triton.jit
def _kernel(
    x,
    records,
    bases,
    escapes,
    record_starts,
    y,
    num_rows,
    num_columns,
    num_inputs,
    ROWS: tl.constexpr,
    WARPS: tl.constexpr,
    RECORD_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WORDS: tl.constexpr,
    MASK_A: tl.constexpr,
    MASK_E: tl.constexpr,
    MASK_B: tl.constexpr,
    IS_INTERPRETED: tl.constexpr,
):
    TILE: tl.constexpr = 16 * WARPS
    tile_words: tl.constexpr = WORDS * TILE // RECORD_ROWS
    k_tiles = tl.cdiv(num_inputs, COLUMNS)
    first = tl.program_id(0) * TILE
    row_tile, inside = first // RECORD_ROWS, first % RECORD_ROWS
    word = inside // 16 * (WORDS * 16 // RECORD_ROWS) + tl.arange(0, tile_words)
    n, k, m = tl.arange(0, TILE), tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    base = tl.load(bases + first + n).to(tl.int32) << 7
    total = tl.zeros((TILE, ROWS), tl.float32)
    for column in range(k_tiles):
        record = row_tile * k_tiles + column
        words = records + record.to(tl.int64) * (3 * WORDS) + word
        a, e, b = tl.load(words), tl.load(words + WORDS), tl.load(words + 2 * WORDS)
        # Words (w, g, c, s); registers are (k >> 3, n >> 3).
        r0 = _register(a, e, b, 0, MASK_A, MASK_E, MASK_B)
        r1 = _register(a, e, b, 1, MASK_A, MASK_E, MASK_B)
        r2 = _register(a, e, b, 2, MASK_A, MASK_E, MASK_B)
        r3 = _register(a, e, b, 3, MASK_A, MASK_E, MASK_B)
        codes = tl.join(tl.join(r0, r1), tl.join(r2, r3))  # word, half, n >> 3, k >> 3
        codes = tl.reshape(codes, (WARPS, 8, 4, 4, 2, 2, 2))  # w, g, c, s, half, n >> 3, k >> 3
        codes = tl.reshape(tl.permute(codes, (0, 5, 1, 3, 6, 2, 4)), (TILE, COLUMNS))
        bits = codes + base[:, None]
        for at in range(tl.load(record_starts + record), tl.load(record_starts + record + 1)):
            entry = tl.load(escapes + at)
            slot = (entry >> 16) & 0xFFFF
            thread, step, register, half = slot >> 5, (slot >> 3) & 3, (slot >> 1) & 3, slot & 1
            row = (thread >> 5) * 16 + ((thread >> 2) & 7) + 8 * (register & 1) - inside
            place = step * 16 + 8 * (register >> 1) + 2 * (thread & 3) + half
            bits = tl.where((n == row)[:, None] & (k == place)[None, :], entry & 0xFFFF, bits)
        weights = (bits << 16).to(tl.float32, bitcast=True)
        inputs = column * COLUMNS + k
        here = (m < num_rows)[None, :] & (inputs < num_inputs)[:, None]
        rows = tl.load(x + m[None, :] * num_inputs + inputs[:, None], mask=here, other=0.0)
        # Codes that stand for padding meet zeros of x; an escape of Inf lies never there.
        if IS_INTERPRETED:  # the interpreter's product of BF16 is wrong
            total += tl.dot(weights, rows.to(tl.float32))
        else:
            total = tl.dot(weights.to(tl.bfloat16), rows, total)
    column = first + n
    inside_y = (m < num_rows)[None, :] & (column < num_columns)[:, None]
    tl.store(
        y + m[None, :].to(tl.int64) * num_columns + column[:, None],
        total.to(y.dtype.element_ty),
        mask=inside_y,
    )


_kernel: Any = _kernel
