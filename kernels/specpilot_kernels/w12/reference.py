"""W12, slow and obvious, number by number in the words of :mod:`specpilot_kernels.w12.layout`."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.layout import (
    LARGEST_BASE,
    MASKS,
    MIDPOINT,
    RECORD_COLUMNS,
    RECORD_ROWS,
    RECORD_WORDS,
    WINDOW,
    W12Weight,
    num_records,
    slot_of,
)

__all__ = ["decode_w12_reference", "encode_w12_reference", "view_w12_reference"]

_WORD = 2**32 - 1


def encode_w12_reference(bits: NDArray[np.uint16]) -> W12Weight:
    """BF16 bits, uint16 (N, K) -> the encoded weight."""
    num_rows, num_columns = bits.shape
    tiles = num_records((num_rows, num_columns))
    records = np.zeros((*tiles, 3, RECORD_WORDS), np.uint32)
    bases = np.zeros(tiles[0] * RECORD_ROWS, np.uint8)
    escapes: list[list[int]] = [[] for _ in range(tiles[0] * tiles[1])]
    for n in range(num_rows):
        bases[n] = _base_of(bits[n])
        for k in range(num_columns):
            number = int(bits[n, k])
            slot = slot_of(n % RECORD_ROWS, k % RECORD_COLUMNS)
            tile = n // RECORD_ROWS, k // RECORD_COLUMNS
            offset = (number >> 7 & 255) - int(bases[n])
            if not 0 <= offset < WINDOW:
                escapes[tile[0] * tiles[1] + tile[1]].append(slot << 16 | number)
                continue
            code = number & 0x807F | offset << 7
            for plane, mask in enumerate(MASKS):
                records[(*tile, plane, slot >> 3)] |= np.uint32(
                    _rotate_right(code << 16 * (slot & 1) & mask, slot)
                )
    starts = np.cumsum([0, *map(len, escapes)]).astype(np.uint32)
    flat = [entry for entries in escapes for entry in sorted(entries)]
    return W12Weight((num_rows, num_columns), records, bases, np.array(flat, np.uint32), starts)


def decode_w12_reference(weight: W12Weight) -> NDArray[np.uint16]:
    """The BF16 bits again, uint16 (N, K)."""
    return _decode(weight, has_plane_b=True)


def view_w12_reference(weight: W12Weight) -> NDArray[np.uint16]:
    """BF16 bits of the 8-bit view, uint16 (N, K): plane B is not read."""
    return _decode(weight, has_plane_b=False)


def _decode(weight: W12Weight, *, has_plane_b: bool) -> NDArray[np.uint16]:
    num_rows, num_columns = weight.shape
    bits = np.zeros(weight.shape, np.uint16)
    starts = weight.record_starts
    escaped = [
        {int(entry) >> 16: int(entry) & 0xFFFF for entry in weight.escapes[begin:end]}
        for begin, end in itertools.pairwise(starts)
    ]
    for n in range(num_rows):
        for k in range(num_columns):
            slot = slot_of(n % RECORD_ROWS, k % RECORD_COLUMNS)
            tile = n // RECORD_ROWS, k // RECORD_COLUMNS
            code = 0
            for plane, mask in enumerate(MASKS[: 3 if has_plane_b else 2]):
                word = int(weight.records[(*tile, plane, slot >> 3)])
                code |= _rotate_right(word, -slot) & mask
            number = (code >> 16 * (slot & 1) & 0xFFFF) + (int(weight.bases[n]) << 7)
            if not has_plane_b and number & 0x7F80:
                number |= MIDPOINT
            record = tile[0] * weight.records.shape[1] + tile[1]
            bits[n, k] = escaped[record].get(slot, number)
    return bits


def _base_of(row: NDArray[np.uint16]) -> int:
    exponents = row >> 7 & 255
    covered = [((exponents >= base) & (exponents < base + WINDOW)).sum() for base in range(LARGEST_BASE + 1)]
    return max(range(LARGEST_BASE + 1), key=lambda base: (covered[base], base))


def _rotate_right(word: int, slot: int) -> int:
    """By 4 times the slot's register; with a negative slot to the left."""
    count = 4 * (abs(slot) >> 1 & 3) * (1 if slot >= 0 else -1) % 32
    return (word >> count | word << (32 - count)) & _WORD
