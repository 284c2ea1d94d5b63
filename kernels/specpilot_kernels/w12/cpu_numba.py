"""W12 on the CPU. Importing this module compiles it.

A warp's 16 rows x 64 columns of codes are made first, as words of two codes, in loops a compiler turns into vector
instructions; then they are brought into the order of the planes and spread over these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_pool import job_of, run_parts
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
_LAST, _LARGEST = np.uint16(WINDOW - 1), np.uint16(LARGEST_BASE)
_MIDPOINT = np.uint16(MIDPOINT)
_SIGN_MANTISSA = np.uint16(0x807F)
_EXPONENT = np.uint16(0x7F80)
_BELOW_TOP = np.uint16((WINDOW - 1) << 7)
_SIGN = np.uint16(15)
_MOST_PARTS = 64
_COUNTED = 2**15
"""Numbers that a count of 16 bits holds."""
_slot, _place = inlined(slot_of), inlined(place_of)


@inlined
def _right(word: Any, count: Any) -> Any:
    """Rotate a word of 32 bits to the right; count 4, 8 or 12."""
    return np.uint32(word >> np.uint32(count)) | np.uint32(word << np.uint32(32 - count))


@inlined
def _spread(words: Any, registers: Any, planes: Any, first_word: int) -> None:
    """Words of two codes, (16, 32), into 128 words of each plane; ``registers``, (4, 128), is overwritten."""
    for g in range(8):
        for s in range(_STEPS):
            for c in range(4):
                at = 16 * g + 4 * c + s
                registers[0, at], registers[1, at] = words[g, 8 * s + c], words[g + 8, 8 * s + c]
                registers[2, at], registers[3, at] = words[g, 8 * s + 4 + c], words[g + 8, 8 * s + 4 + c]
    end = first_word + _WARP_WORDS
    a, e, b = planes[0, first_word:end], planes[1, first_word:end], planes[2, first_word:end]
    for at in range(_WARP_WORDS):
        w0, w1 = registers[0, at], _right(registers[1, at], 4)
        w2, w3 = _right(registers[2, at], 8), _right(registers[3, at], 12)
        a[at] = (w0 & _A) | (w1 & _right(_A, 4)) | (w2 & _right(_A, 8)) | (w3 & _right(_A, 12))
        e[at] = (w0 & _E) | (w1 & _right(_E, 4)) | (w2 & _right(_E, 8)) | (w3 & _right(_E, 12))
        b[at] = (w0 & _B) | (w1 & _right(_B, 4)) | (w2 & _right(_B, 8)) | (w3 & _right(_B, 12))


@inlined
def _gather(planes: Any, first_word: int, registers: Any, words: Any, is_view: bool) -> None:
    """128 words of each plane into words of two codes, (16, 32); ``registers``, (4, 128), is overwritten."""
    end = first_word + _WARP_WORDS
    a_words, e_words, b_words = (
        planes[0, first_word:end],
        planes[1, first_word:end],
        planes[2, first_word:end],
    )
    b_mask = np.uint32(0) if is_view else _B
    for at in range(_WARP_WORDS):
        a, e, b = a_words[at], e_words[at], b_words[at]
        registers[0, at] = (a & _A) | (e & _E) | (b & b_mask)
        registers[1, at] = (_right(a, 28) & _A) | (_right(e, 28) & _E) | (_right(b, 28) & b_mask)
        registers[2, at] = (_right(a, 24) & _A) | (_right(e, 24) & _E) | (_right(b, 24) & b_mask)
        registers[3, at] = (_right(a, 20) & _A) | (_right(e, 20) & _E) | (_right(b, 20) & b_mask)
    for g in range(8):
        for s in range(_STEPS):
            for c in range(4):
                at = 16 * g + 4 * c + s
                words[g, 8 * s + c], words[g + 8, 8 * s + c] = registers[0, at], registers[1, at]
                words[g, 8 * s + 4 + c], words[g + 8, 8 * s + 4 + c] = registers[2, at], registers[3, at]


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


@inlined
def _base_by_top(row: Any) -> int:
    """The base when the row's highest exponent alone tells it, else -1.

    Windows are tried that end at the highest exponent, or above it while they lose nothing. One that ends lower loses
    all numbers of the highest and gains at most those below: where these are no more, it covers no more.
    """
    # Differences, not comparisons, which the compiler widens to 64 bits.
    top = np.uint16(0)
    for k in range(len(row)):
        exponent = np.uint16(row[k] & _EXPONENT)
        if exponent > top:
            top = exponent
    if top == _EXPONENT:
        return -1
    first = np.uint16(top - _BELOW_TOP) if top >= _BELOW_TOP else np.uint16(0)
    lowest, excess = top, np.int64(0)
    for begin in range(0, len(row), _COUNTED):
        some = row[begin : begin + _COUNTED]
        num_below_top, num_below = np.uint16(0), np.uint16(0)
        for k in range(len(some)):
            exponent = np.uint16(some[k] & _EXPONENT)
            is_below = np.uint16(np.uint16(exponent - first) >> _SIGN)
            num_below = np.uint16(num_below + is_below)
            num_below_top = np.uint16(num_below_top + np.uint16(np.uint16(exponent - top) >> _SIGN))
            # A number below the window counts as very high here.
            exponent = np.uint16(exponent | np.uint16(np.uint16(0) - is_below))
            if exponent < lowest:
                lowest = exponent
        excess += len(some) - np.int64(num_below_top) - np.int64(num_below)
    return int(min(lowest >> np.uint16(7), _LARGEST)) if excess >= 0 else -1


@inlined
def _base_by_counts(row: Any, counts: Any) -> int:
    """The base, from how often every exponent occurs."""
    counts[:] = 0
    # Two counts, so that equal exponents side by side do not wait for each other.
    for k in range(len(row)):
        counts[k & 1, (row[k] >> np.uint16(7)) & np.uint16(255)] += 1
    covered = 0
    for exponent in range(WINDOW):
        covered += counts[0, exponent] + counts[1, exponent]
    best, most = 0, covered
    for base in range(1, _BASES):
        covered += counts[0, base + WINDOW - 1] + counts[1, base + WINDOW - 1]
        covered -= counts[0, base - 1] + counts[1, base - 1]
        if covered >= most:
            best, most = base, covered
    return best


@inlined
def _choose(bits: Any, bases: Any, first_row: int, last_row: int) -> None:
    counts = np.empty((2, 256), np.int64)
    for n in range(first_row, last_row):
        base = _base_by_top(bits[n])
        bases[n] = base if base >= 0 else _base_by_counts(bits[n], counts)


@inlined
def _choose_part(part: int, num_parts: int, bits: Any, bases: Any) -> None:
    num_rows = bits.shape[0]
    _choose(bits, bases, num_rows * part // num_parts, num_rows * (part + 1) // num_parts)


@kernel("void(u2[:,::1], u1[::1], i8)")
def choose_bases(bits: Any, bases: Any, pool: int) -> None:
    """The base of every row; ``pool`` is of :mod:`specpilot_kernels.cpu_pool`."""
    num_parts = min(bits.shape[0], _MOST_PARTS) if pool else 1
    run_parts(pool, job_of(_choose_part, (num_parts, bits, bases)), num_parts)


@inlined
def _encode_warps(
    bits: Any, bases: Any, records: Any, num_escaped: Any, first_warp: int, last_warp: int
) -> None:
    num_rows, num_columns = bits.shape
    codes = np.empty((_WARP_ROWS, RECORD_COLUMNS), np.uint16)
    words, registers = codes.view(np.uint32), np.empty((4, _WARP_WORDS), np.uint32)
    for warp in range(first_warp, last_warp):
        tile, first_row = warp // _WARPS, warp * _WARP_ROWS
        for column_tile in range(records.shape[1]):
            begin = column_tile * RECORD_COLUMNS
            count = min(RECORD_COLUMNS, num_columns - begin)
            if count < RECORD_COLUMNS or first_row + _WARP_ROWS > num_rows:
                codes[:] = 0
            for row in range(min(_WARP_ROWS, num_rows - first_row)):
                n = first_row + row
                numbers = bits[n, begin : begin + count]
                base = np.uint16(bases[n])
                outside = np.uint16(0)
                for k in range(count):
                    number = numbers[k]
                    offset = np.uint16(((number >> np.uint16(7)) & np.uint16(255)) - base)
                    # The sign: it is below the window, or above it.
                    is_out = np.uint16(np.uint16(offset | np.uint16(_LAST - offset)) >> _SIGN)
                    code = np.uint16((number & _SIGN_MANTISSA) | np.uint16(offset << np.uint16(7)))
                    codes[row, k] = np.uint16(code & np.uint16(is_out - np.uint16(1)))
                    outside = np.uint16(outside + is_out)
                num_escaped[n, column_tile] = outside
            _spread(words, registers, records[tile, column_tile], _WARP_WORDS * (warp % _WARPS))


@inlined
def _encode_part(part: int, num_parts: int, bits: Any, bases: Any, records: Any, num_escaped: Any) -> None:
    num_warps = records.shape[0] * _WARPS
    first, last = num_warps * part // num_parts, num_warps * (part + 1) // num_parts
    _encode_warps(bits, bases, records, num_escaped, first, last)


@kernel("void(u2[:,::1], u1[::1], u4[:,:,:,::1], u1[:,::1], i8)")
def encode_records(bits: Any, bases: Any, records: Any, num_escaped: Any, pool: int) -> None:
    """Codes of all records.

    ``num_escaped`` (rows with padding, column tiles) counts the escapes of a row's 64 columns.
    """
    num_parts = min(records.shape[0] * _WARPS, _MOST_PARTS) if pool else 1
    run_parts(pool, job_of(_encode_part, (num_parts, bits, bases, records, num_escaped)), num_parts)


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


@inlined
def _decode_warps(
    records: Any,
    bases: Any,
    escapes: Any,
    starts: Any,
    bits: Any,
    is_view: bool,
    first_warp: int,
    last_warp: int,
) -> None:
    num_rows, num_columns = bits.shape
    codes = np.empty((_WARP_ROWS, RECORD_COLUMNS), np.uint16)
    words, registers = codes.view(np.uint32), np.empty((4, _WARP_WORDS), np.uint32)
    for warp in range(first_warp, last_warp):
        tile, first_row = warp // _WARPS, warp * _WARP_ROWS
        for column_tile in range(records.shape[1]):
            begin = column_tile * RECORD_COLUMNS
            count = min(RECORD_COLUMNS, num_columns - begin)
            first_word = _WARP_WORDS * (warp % _WARPS)
            _gather(records[tile, column_tile], first_word, registers, words, is_view)
            for row in range(min(_WARP_ROWS, num_rows - first_row)):
                n = first_row + row
                numbers = bits[n, begin : begin + count]
                base = np.uint16(np.uint16(bases[n]) << np.uint16(7))
                if is_view:
                    for k in range(count):
                        number = np.uint16(codes[row, k] + base)
                        has_exponent = np.uint16((number & _EXPONENT) != 0)
                        numbers[k] = np.uint16(number | np.uint16(has_exponent * _MIDPOINT))
                else:
                    for k in range(count):
                        numbers[k] = np.uint16(codes[row, k] + base)
            record = tile * records.shape[1] + column_tile
            _patch(escapes, starts, record, warp % _WARPS, bits, first_row, begin)


@inlined
def _decode_part(
    part: int,
    num_parts: int,
    records: Any,
    bases: Any,
    escapes: Any,
    starts: Any,
    bits: Any,
    is_view: bool,
) -> None:
    num_warps = records.shape[0] * _WARPS
    first, last = num_warps * part // num_parts, num_warps * (part + 1) // num_parts
    _decode_warps(records, bases, escapes, starts, bits, is_view, first, last)


@kernel("void(u4[:,:,:,::1], u1[::1], u4[::1], u4[::1], u2[:,::1], b1, i8)")
def decode_records(
    records: Any, bases: Any, escapes: Any, starts: Any, bits: Any, is_view: bool, pool: int
) -> None:
    """BF16 bits of the weight, or of its view."""
    num_parts = min(records.shape[0] * _WARPS, _MOST_PARTS) if pool else 1
    work = num_parts, records, bases, escapes, starts, bits, is_view
    run_parts(pool, job_of(_decode_part, work), num_parts)
