"""Where every bit of a W12 weight lies: the one home of the layout, for the CPU, the kernels of a GPU and the file.

**Code.** Row n of a BF16 weight W, (N, K), has a *base* b_n, 0 to 239, and with it the window of 16 exponents b_n to
b_n + 15 that covers most of the row; of equal windows the highest. A number whose exponent field e lies in the window
becomes 12 bits, written in the places they have in BF16:

    bit 15 sign | bits 10..7 offset e - b_n | bits 6..0 mantissa

so ``code + (b_n << 7)`` are the checkpoint's own bits: one addition decodes. Zeros and denormals are e = 0, so only a
row with base 0, which is a row of little else, covers them. No window reaches e = 255.

**Escapes.** A number outside its row's window (zeros, denormals, Inf and NaN with its payload too) has code 0 and
stands with its 16 bits in a list.

**Records.** The codes of 128 rows x 64 columns are one record of 12,288 bytes; records lie row tile by row tile,
columns ascending. A record has three planes of 1,024 words of 32 bits, little endian:

    plane A  sign and upper mantissa  bits 15, 6..4 of a code, mask 0x80708070
    plane E  offset                   bits 10..7,              mask 0x07800780
    plane B  lower mantissa           bits 3..0,               mask 0x000F000F

Planes A and E, the first two thirds of the record, are the *8-bit view*.

**Places.** A thread of a tensor core product (16 x 16 fragments of wgmma m64k16 and mma m16n8k16) gets four registers
of two numbers each. With n, k inside the record,

    thread t = 32 (n >> 4) + 4 (n & 7) + ((k & 7) >> 1)     step s = k >> 4
    register r = ((n >> 3) & 1) + 2 ((k >> 3) & 1)          half h = k & 1

the two codes of register r stand side by side in a word (h = 1 in the upper half), which is masked for each plane,
rotated right by 4 r and put into word 4 t + s of the plane. The four rotations of a mask cover all 32 bits.

**Escape list.** Words of 32 bits, ``slot << 16 | BF16 bits`` with slot = t << 5 | s << 3 | r << 1 | h, ascending within
a record; ``record_starts[i]`` to ``record_starts[i + 1]`` are those of record i.

**Padding.** Rows and columns up to whole records have code 0; padding rows have base 0. So padding rows decode to +0,
padding columns to numbers that meet no activation.

**View.** The lower four mantissa bits count as 8, the middle of what they can be; a number with exponent field 0 has
them as 0. Escapes keep their exact bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LARGEST_BASE",
    "MASKS",
    "MIDPOINT",
    "RECORD_COLUMNS",
    "RECORD_ROWS",
    "RECORD_WORDS",
    "WINDOW",
    "W12Weight",
    "num_records",
    "place_of",
    "slot_of",
]

RECORD_ROWS = 128
RECORD_COLUMNS = 64
RECORD_WORDS = 1024
"""Words of 32 bits of one plane of a record."""
WINDOW = 16
"""Exponents of a row's window."""
LARGEST_BASE = 239
"""The highest window ends at exponent field 254, the last of finite numbers."""
MASKS = (0x80708070, 0x07800780, 0x000F000F)
"""Bits of two codes side by side that planes A, E and B hold."""
MIDPOINT = 8
"""What the view takes for the lower four mantissa bits."""


def num_records(shape: tuple[int, int]) -> tuple[int, int]:
    """Row tiles and column tiles of a weight of that shape."""
    return -(-shape[0] // RECORD_ROWS), -(-shape[1] // RECORD_COLUMNS)


def slot_of(n: Any, k: Any) -> Any:
    """The slot of row n, column k of a record; integers, or arrays or tensors of them, and compiled on the CPU."""
    thread = 32 * (n >> 4) + 4 * (n & 7) + ((k & 7) >> 1)
    register = ((n >> 3) & 1) + 2 * ((k >> 3) & 1)
    return (thread << 5) | ((k >> 4) << 3) | (register << 1) | (k & 1)


def place_of(slot: Any) -> tuple[Any, Any]:
    """Row and column of a slot: the inverse of :func:`slot_of`."""
    thread, step, register, half = slot >> 5, (slot >> 3) & 3, (slot >> 1) & 3, slot & 1
    n = 16 * (thread >> 5) + ((thread >> 2) & 7) + 8 * (register & 1)
    return n, 16 * step + 8 * (register >> 1) + 2 * (thread & 3) + half


@dataclass(frozen=True, eq=False)
class W12Weight:
    """One encoded weight. Never written to, so threads may share it.

    Attributes
    ----------
    shape : (int, int)
        N, K of the weight.
    records : array, uint32, (row tiles, column tiles, 3, 1024), contiguous
        Planes A, E, B.
    bases : array, uint8, (row tiles * 128,)
        b_n.
    escapes : array, uint32, (number of escapes,)
    record_starts : array, uint32, (number of records + 1,)
    """

    shape: tuple[int, int]
    records: NDArray[np.uint32]
    bases: NDArray[np.uint8]
    escapes: NDArray[np.uint32]
    record_starts: NDArray[np.uint32]

    def __post_init__(self) -> None:
        tiles = num_records(self.shape)
        expected = (
            ("records", self.records, np.uint32, (*tiles, 3, RECORD_WORDS)),
            ("bases", self.bases, np.uint8, (tiles[0] * RECORD_ROWS,)),
            ("escapes", self.escapes, np.uint32, (len(self.escapes),)),
            ("record_starts", self.record_starts, np.uint32, (tiles[0] * tiles[1] + 1,)),
        )
        for name, part, dtype, shape in expected:
            if part.dtype != dtype or part.shape != shape or not part.flags.c_contiguous:
                raise ValueError(
                    f"{name}: got {part.dtype} {part.shape}, expected contiguous {np.dtype(dtype)} {shape} for a "
                    f"weight of shape {self.shape}"
                )
        starts = self.record_starts
        if starts[0] != 0 or starts[-1] != len(self.escapes) or (starts[1:] < starts[:-1]).any():
            raise ValueError(
                f"record_starts: got {starts[0]} to {starts[-1]}, expected to rise from 0 to {len(self.escapes)}, "
                "the number of escapes"
            )
        if (self.bases > LARGEST_BASE).any():
            raise ValueError(f"bases: got {self.bases.max()}, expected at most {LARGEST_BASE}")
        if len(self.escapes) and int(self.escapes.max() >> 16) >= RECORD_ROWS * RECORD_COLUMNS:
            raise ValueError(
                f"escapes: got slot {self.escapes.max() >> 16}, expected less than {RECORD_ROWS * RECORD_COLUMNS}"
            )

    @property
    def memory_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in (self.records, self.bases, self.escapes, self.record_starts))

    @property
    def bits_per_weight(self) -> float:
        """Bits of all parts, padding too, over the numbers of the weight."""
        return 8 * self.memory_bytes / max(1, self.shape[0] * self.shape[1])

    @property
    def escape_rate(self) -> float:
        """Share of the numbers that are escapes."""
        return len(self.escapes) / max(1, self.shape[0] * self.shape[1])
