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

from specpilot_kernels.w12.cuda import ESCAPE_LIST, NO_ESCAPE, DeviceW12
from specpilot_kernels.w12.device_order import record_band
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
    y: Tensor = _product(x, *weight.parts, weight.shape[0])
    return y


@custom_op("specpilot::w12_gemm_triton", mutates_args=())
def _product(
    x: Tensor, records: Tensor, bases: Tensor, slots: Tensor, escapes: Tensor, num_columns: int
) -> Tensor:
    # The interpreter cuts float32 to BF16 instead of rounding it.
    out = x.new_empty(x.shape[0], num_columns, dtype=torch.float32 if _IS_INTERPRETED else x.dtype)
    grid = (triton.cdiv(num_columns, 16 * _WARPS),)
    _kernel[grid](
        x,
        records,
        bases,
        slots,
        escapes,
        out,
        x.shape[0],
        num_columns,
        x.shape[1],
        record_band((num_columns, x.shape[1])),
        ROWS=max(16, triton.next_power_of_2(x.shape[0])),
        WARPS=_WARPS,
        RECORD_ROWS=RECORD_ROWS,
        COLUMNS=RECORD_COLUMNS,
        WORDS=RECORD_WORDS,
        MASK_A=MASKS[0] - 2**32,  # as int32
        MASK_E=MASKS[1],
        MASK_B=MASKS[2],
        NO_ESCAPE=NO_ESCAPE - 2**32,
        LIST_BITS=ESCAPE_LIST >> 30,
        IS_INTERPRETED=_IS_INTERPRETED,
        num_warps=4,
    )
    return out.to(x.dtype)


@_product.register_fake
def _(x: Tensor, records: Tensor, bases: Tensor, slots: Tensor, escapes: Tensor, num_columns: int) -> Tensor:
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
    slots,
    escapes,
    y,
    num_rows,
    num_columns,
    num_inputs,
    band,
    ROWS: tl.constexpr,
    WARPS: tl.constexpr,
    RECORD_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WORDS: tl.constexpr,
    MASK_A: tl.constexpr,
    MASK_E: tl.constexpr,
    MASK_B: tl.constexpr,
    NO_ESCAPE: tl.constexpr,
    LIST_BITS: tl.constexpr,
    IS_INTERPRETED: tl.constexpr,
):
    TILE: tl.constexpr = 16 * WARPS
    tile_words: tl.constexpr = WORDS * TILE // RECORD_ROWS
    k_tiles = tl.cdiv(num_inputs, COLUMNS)
    first = tl.program_id(0) * TILE
    row_tile, inside = first // RECORD_ROWS, first % RECORD_ROWS
    warp_words: tl.constexpr = WORDS * 16 // RECORD_ROWS  # of one plane; a warp has its three together
    words_of = tl.arange(0, tile_words)
    word = (inside // 16 + words_of // warp_words) * (3 * warp_words) + words_of % warp_words
    first_of_band = row_tile // band * band
    column_step = tl.minimum(band, tl.cdiv(num_columns, RECORD_ROWS) - first_of_band)
    n, k, m = tl.arange(0, TILE), tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    base = tl.load(bases + first + n).to(tl.int32) << 7
    total = tl.zeros((TILE, ROWS), tl.float32)
    for column in range(k_tiles):
        record = first_of_band.to(tl.int64) * k_tiles + column * column_step + row_tile - first_of_band
        words = records + record * (3 * WORDS) + word
        a, e, b = tl.load(words), tl.load(words + warp_words), tl.load(words + 2 * warp_words)
        # Words (w, g, c, s); registers are (k >> 3, n >> 3).
        r0 = _register(a, e, b, 0, MASK_A, MASK_E, MASK_B)
        r1 = _register(a, e, b, 1, MASK_A, MASK_E, MASK_B)
        r2 = _register(a, e, b, 2, MASK_A, MASK_E, MASK_B)
        r3 = _register(a, e, b, 3, MASK_A, MASK_E, MASK_B)
        codes = tl.join(tl.join(r0, r1), tl.join(r2, r3))  # word, half, n >> 3, k >> 3
        codes = tl.reshape(codes, (WARPS, 8, 4, 4, 2, 2, 2))  # w, g, c, s, half, n >> 3, k >> 3
        codes = tl.reshape(tl.permute(codes, (0, 5, 1, 3, 6, 2, 4)), (TILE, COLUMNS))
        bits = codes + base[:, None]
        for warp in tl.static_range(WARPS):
            slot = slots + (record * (RECORD_ROWS // 16) + inside // 16 + warp) * 2
            one, two = tl.load(slot), tl.load(slot + 1)
            is_list = ((one >> 30) & 3) == LIST_BITS
            here = (one != NO_ESCAPE).to(tl.int32) + (two != NO_ESCAPE).to(tl.int32)
            for i in range(tl.where(is_list, one & 0xFFFF, here)):
                listed = tl.load(escapes + two + i, mask=is_list, other=0)
                entry = tl.where(is_list, listed, tl.where(i == 0, one, two))
                place = entry >> 16
                thread, step, register, half = place >> 5, (place >> 3) & 3, (place >> 1) & 3, place & 1
                row = (thread >> 5) * 16 + ((thread >> 2) & 7) + 8 * (register & 1) - inside
                at = step * 16 + 8 * (register >> 1) + 2 * (thread & 3) + half
                bits = tl.where((n == row)[:, None] & (k == at)[None, :], entry & 0xFFFF, bits)
        weights = (bits << 16).to(tl.float32, bitcast=True)
        inputs = column * COLUMNS + k
        is_x = (m < num_rows)[None, :] & (inputs < num_inputs)[:, None]
        rows = tl.load(x + m[None, :] * num_inputs + inputs[:, None], mask=is_x, other=0.0)
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
