"""W12 on the CPU. Importing this module compiles it.

A warp's 16 rows x 64 columns of codes are made first, as words of two codes, in loops a compiler turns into vector
instructions; then the words are spread over the planes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.w12.layout import (
    LARGEST_BASE,
    MASKS,
    MIDPOINT,
    RECORD_COLUMNS,
    RECORD_ROWS,
    RECORD_WORDS,
    WINDOW,
    place_of,
    slot_of,
)

__all__ = ["choose_bases", "decode_records", "encode_records", "list_escapes"]

_A, _E, _B = (np.uint32(mask) for mask in MASKS)
_WARPS, _WARP_ROWS = RECORD_ROWS // 16, 16
_WARP_WORDS = RECORD_WORDS // _WARPS
_STEPS = RECORD_COLUMNS // 16
_BASES = LARGEST_BASE + 1
_WINDOW = np.uint16(WINDOW)
_MIDPOINT = np.uint16(MIDPOINT)
_SIGN_MANTISSA = np.uint16(0x807F)
_slot, _place = inlined(slot_of), inlined(place_of)


@inlined
def _right(word: Any, count: Any) -> Any:
    """Rotate a word of 32 bits to the right; count 4, 8 or 12."""
    return np.uint32(word >> np.uint32(count)) | np.uint32(word << np.uint32(32 - count))


@inlined
def _spread(words: Any, planes: Any, first_word: int) -> None:
    """Words of two codes, (16, 32), into 128 words of each plane."""
    for g in range(8):
        for c in range(4):
            at = first_word + 4 * (4 * g + c)
            for s in range(_STEPS):
                w0, w1 = words[g, 8 * s + c], words[g + 8, 8 * s + c]
                w2, w3 = words[g, 8 * s + 4 + c], words[g + 8, 8 * s + 4 + c]
                w1, w2, w3 = _right(w1, 4), _right(w2, 8), _right(w3, 12)
                planes[0, at + s] = (
                    (w0 & _A) | (w1 & _right(_A, 4)) | (w2 & _right(_A, 8)) | (w3 & _right(_A, 12))
                )
                planes[1, at + s] = (
                    (w0 & _E) | (w1 & _right(_E, 4)) | (w2 & _right(_E, 8)) | (w3 & _right(_E, 12))
                )
                planes[2, at + s] = (
                    (w0 & _B) | (w1 & _right(_B, 4)) | (w2 & _right(_B, 8)) | (w3 & _right(_B, 12))
                )


@inlined
def _gather(planes: Any, words: Any, first_word: int, is_view: bool) -> None:
    """128 words of each plane into words of two codes, (16, 32)."""
    for g in range(8):
        for c in range(4):
            at = first_word + 4 * (4 * g + c)
            for s in range(_STEPS):
                a, e = planes[0, at + s], planes[1, at + s]
                b = np.uint32(0) if is_view else planes[2, at + s]
                words[g, 8 * s + c] = (a & _A) | (e & _E) | (b & _B)
                words[g + 8, 8 * s + c] = (_right(a, 28) & _A) | (_right(e, 28) & _E) | (_right(b, 28) & _B)
                words[g, 8 * s + 4 + c] = (_right(a, 24) & _A) | (_right(e, 24) & _E) | (_right(b, 24) & _B)
                words[g + 8, 8 * s + 4 + c] = (
                    (_right(a, 20) & _A) | (_right(e, 20) & _E) | (_right(b, 20) & _B)
                )


@inlined
def _patch(escapes: Any, starts: Any, record: int, warp: int, bits: Any, first_row: int, begin: int) -> None:
    """Put the escapes of one warp's rows in their places. Slots ascend, and a warp's are 1,024 in a row."""
    for at in range(starts[record], starts[record + 1]):
        slot = np.int64(escapes[at]) >> 16
        if slot >> 10 == warp:
            row, column = _place(slot)
            n, k = first_row + row - _WARP_ROWS * warp, begin + column
            if n < bits.shape[0] and k < bits.shape[1]:
                bits[n, k] = np.uint16(np.int64(escapes[at]) & 0xFFFF)


@kernel("void(u2[:,::1], u1[::1], i8)", parallel=True)
def choose_bases(bits: Any, bases: Any, num_threads: int) -> None:
    """The base of every row."""
    num_rows = bits.shape[0]
    for part in numba.prange(num_threads):
        # Two counts, so that equal exponents side by side do not wait for each other.
        counts = np.empty((2, 256), np.int64)
        for n in range(num_rows * part // num_threads, num_rows * (part + 1) // num_threads):
            counts[:] = 0
            for k in range(bits.shape[1]):
                counts[k & 1, (bits[n, k] >> np.uint16(7)) & np.uint16(255)] += 1
            covered = 0
            for exponent in range(WINDOW):
                covered += counts[0, exponent] + counts[1, exponent]
            best, most = 0, covered
            for base in range(1, _BASES):
                covered += counts[0, base + WINDOW - 1] + counts[1, base + WINDOW - 1]
                covered -= counts[0, base - 1] + counts[1, base - 1]
                if covered >= most:
                    best, most = base, covered
            bases[n] = best


@kernel("void(u2[:,::1], u1[::1], u4[:,:,:,::1], u1[:,::1], i8)", parallel=True)
def encode_records(bits: Any, bases: Any, records: Any, num_escaped: Any, num_threads: int) -> None:
    """Codes of all records.

    ``num_escaped`` (rows with padding, column tiles) counts the escapes of a row's 64 columns.
    """
    num_rows, num_columns = bits.shape
    num_warps = records.shape[0] * _WARPS
    for part in numba.prange(num_threads):
        codes = np.empty((_WARP_ROWS, RECORD_COLUMNS), np.uint16)
        words = codes.view(np.uint32)
        for warp in range(num_warps * part // num_threads, num_warps * (part + 1) // num_threads):
            tile, first_row = warp // _WARPS, warp * _WARP_ROWS
            for column_tile in range(records.shape[1]):
                begin = column_tile * RECORD_COLUMNS
                count = min(RECORD_COLUMNS, num_columns - begin)
                if count < RECORD_COLUMNS or first_row + _WARP_ROWS > num_rows:
                    codes[:] = 0
                for row in range(min(_WARP_ROWS, num_rows - first_row)):
                    n = first_row + row
                    base = np.uint16(bases[n])
                    outside = np.uint16(0)
                    for k in range(count):
                        number = bits[n, begin + k]
                        offset = np.uint16(((number >> np.uint16(7)) & np.uint16(255)) - base)
                        is_out = np.uint16(offset >= _WINDOW)
                        code = np.uint16((number & _SIGN_MANTISSA) | np.uint16(offset << np.uint16(7)))
                        codes[row, k] = np.uint16(code & np.uint16(is_out - np.uint16(1)))
                        outside += is_out
                    num_escaped[n, column_tile] = outside
                planes = records[tile, column_tile]
                _spread(words, planes, _WARP_WORDS * (warp % _WARPS))


@kernel("void(u2[:,::1], u1[::1], u1[:,::1], u8[::1])")
def list_escapes(bits: Any, bases: Any, num_escaped: Any, keys: Any) -> None:
    """Escapes of all records, row by row, as ``record << 29 | slot << 16 | BF16 bits``."""
    num_columns, num_tiles = bits.shape[1], num_escaped.shape[1]
    at = 0
    for n in range(bits.shape[0]):
        for column_tile in range(num_tiles):
            if num_escaped[n, column_tile]:
                begin = column_tile * RECORD_COLUMNS
                record = n // RECORD_ROWS * num_tiles + column_tile
                for k in range(min(RECORD_COLUMNS, num_columns - begin)):
                    number = np.int64(bits[n, begin + k])
                    offset = ((number >> 7) & 255) - np.int64(bases[n])
                    if offset < 0 or offset >= WINDOW:
                        keys[at] = np.uint64(
                            (record << 29) | (_slot(n & (RECORD_ROWS - 1), k) << 16) | number
                        )
                        at += 1


@kernel("void(u4[:,:,:,::1], u1[::1], u4[::1], u4[::1], u2[:,::1], b1, i8)", parallel=True)
def decode_records(
    records: Any, bases: Any, escapes: Any, starts: Any, bits: Any, is_view: bool, num_threads: int
) -> None:
    """BF16 bits of the weight, or of its view."""
    num_rows, num_columns = bits.shape
    num_warps = records.shape[0] * _WARPS
    for part in numba.prange(num_threads):
        codes = np.empty((_WARP_ROWS, RECORD_COLUMNS), np.uint16)
        words = codes.view(np.uint32)
        for warp in range(num_warps * part // num_threads, num_warps * (part + 1) // num_threads):
            tile, first_row = warp // _WARPS, warp * _WARP_ROWS
            for column_tile in range(records.shape[1]):
                begin = column_tile * RECORD_COLUMNS
                count = min(RECORD_COLUMNS, num_columns - begin)
                _gather(records[tile, column_tile], words, _WARP_WORDS * (warp % _WARPS), is_view)
                for row in range(min(_WARP_ROWS, num_rows - first_row)):
                    n = first_row + row
                    base = np.uint16(np.uint16(bases[n]) << np.uint16(7))
                    if is_view:
                        for k in range(count):
                            number = np.uint16(codes[row, k] + base)
                            has_exponent = np.uint16((number & np.uint16(0x7F80)) != 0)
                            bits[n, begin + k] = np.uint16(number | np.uint16(has_exponent * _MIDPOINT))
                    else:
                        for k in range(count):
                            bits[n, begin + k] = np.uint16(codes[row, k] + base)
                _patch(
                    escapes,
                    starts,
                    tile * records.shape[1] + column_tile,
                    warp % _WARPS,
                    bits,
                    first_row,
                    begin,
                )
