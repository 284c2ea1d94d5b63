"""W12 weights on a device: encoded there, or brought there from the CPU, in the form that the kernels read.

Where records and their words lie, :mod:`specpilot_kernels.w12.device_order` says.

**Slots.** For the 16 rows of each of a record's eight warps two words: up to two escapes themselves, ``NO_ESCAPE`` for
each that is missing; or, of more, ``ESCAPE_LIST`` plus their number, and where in ``escapes`` the first stands. Kernels
ask slots alone (record_slots.cuh), so where a record's escapes begin is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specpilot_kernels.w12.device_order import WARPS, in_device_order, put_row_tiles, warps_together
from specpilot_kernels.w12.layout import (
    LARGEST_BASE,
    MASKS,
    RECORD_ROWS,
    RECORD_WORDS,
    WINDOW,
    W12Weight,
    num_records,
)
from specpilot_kernels.w12.words import as_int32, by_slot, check_part, rotate_right

__all__ = [
    "ESCAPE_LIST",
    "NO_ESCAPE",
    "DeviceW12",
    "encode_on_device",
    "slot_escapes",
    "to_device",
]

NO_ESCAPE, ESCAPE_LIST = 0xFFFFFFFF, 0x80000000
_CHUNK_TILES = 16
_WORDS = (WARPS, len(MASKS), RECORD_WORDS // WARPS)
"""Of a record."""


@dataclass(frozen=True, eq=False)
class DeviceW12:
    """:class:`specpilot_kernels.w12.W12Weight` as tensors of one device, 32-bit words as int32.

    Records, and what goes by records, are in the device's order.

    Attributes
    ----------
    shape : (int, int)
    records : Tensor, int32, (records, 8, 3, 128)
    bases : Tensor, uint8, (row tiles * 128,)
    slots : Tensor, int32, (records, 8, 2)
    escapes : Tensor, int32, (escapes,)
        All of them, ascending within a record.

    Raises
    ------
    ValueError
        A part has another dtype, shape or device, or is not contiguous, as those of earlier versions have.
    """

    shape: tuple[int, int]
    records: Tensor
    bases: Tensor
    slots: Tensor
    escapes: Tensor

    def __post_init__(self) -> None:
        row_tiles, column_tiles = num_records(self.shape)
        count, device = row_tiles * column_tiles, self.records.device
        for name, dtype, shape in (
            ("records", torch.int32, (count, *_WORDS)),
            ("bases", torch.uint8, (row_tiles * RECORD_ROWS,)),
            ("slots", torch.int32, (count, WARPS, 2)),
            ("escapes", torch.int32, (self.escapes.numel(),)),
        ):
            check_part(name, getattr(self, name), dtype, shape, device)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors in the order in which the kernels take them."""
        return self.records, self.bases, self.slots, self.escapes

    @property
    def memory_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.parts)


def to_device(weight: W12Weight, device: torch.device | str) -> DeviceW12:
    """Copy an encoded weight."""

    def words(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.view(np.int32)).to(device)

    row_tiles, column_tiles = num_records(weight.shape)
    records = torch.empty(row_tiles * column_tiles, *_WORDS, dtype=torch.int32, device=device)
    for tile in range(0, row_tiles, _CHUNK_TILES):
        planes = words(weight.records[tile : tile + _CHUNK_TILES]).flatten(0, 1)
        put_row_tiles(records, warps_together(planes), weight.shape, tile)
    bases, counts = torch.from_numpy(weight.bases).to(device), words(weight.record_starts).diff()
    return _arrange(weight.shape, records, bases, words(weight.escapes), counts)


@torch.no_grad()
def encode_on_device(weight: Tensor) -> DeviceW12:
    """Encode a weight where it is; the same parts as :func:`specpilot_kernels.w12.encode_w12` gives.

    Parameters
    ----------
    weight : Tensor, bfloat16, (N, K), any device
        Takes about 20 times the memory of 2,048 of its rows for a while, beside what is returned.

    Raises
    ------
    ValueError
        Another dtype or number of dimensions.
    """
    if weight.dtype != torch.bfloat16 or weight.ndim != 2:
        raise ValueError(f"weight: got {weight.dtype} {tuple(weight.shape)}, expected bfloat16 (N, K)")
    shape, device = (weight.shape[0], weight.shape[1]), weight.device
    row_tiles, column_tiles = num_records(shape)
    records = torch.empty(row_tiles * column_tiles, *_WORDS, dtype=torch.int32, device=device)
    bases = torch.empty(row_tiles * RECORD_ROWS, dtype=torch.uint8, device=device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    escapes, counts = [none], [none]
    for tile in range(0, row_tiles, _CHUNK_TILES):
        rows = slice(tile * RECORD_ROWS, (tile + _CHUNK_TILES) * RECORD_ROWS)
        words, bases[rows], found, count = _encode_rows(weight[rows])
        put_row_tiles(records, words, shape, tile)
        escapes.append(found)
        counts.append(count)
    return _arrange(shape, records, bases, as_int32(torch.cat(escapes)), torch.cat(counts))


def _encode_rows(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Records, bases, escapes and their number in every record, of some whole row tiles."""
    num_rows, num_columns = weight.shape
    row_tiles, _ = num_records((num_rows, num_columns))
    bits = weight.contiguous().view(torch.int16).to(torch.int32) & 0xFFFF
    exponents = bits >> 7 & 255
    counts = torch.zeros(num_rows, 256, dtype=torch.int64, device=weight.device)
    counts.scatter_add_(1, exponents.long(), torch.ones_like(exponents, dtype=torch.int64))
    sums = torch.nn.functional.pad(counts.cumsum(1), (1, 0))
    covered = sums[:, WINDOW : LARGEST_BASE + 1 + WINDOW] - sums[:, : LARGEST_BASE + 1]
    bases = LARGEST_BASE - covered.flip(1).argmax(1)  # of equal windows the highest
    offsets = exponents - bases[:, None]
    is_out = (offsets < 0) | (offsets >= WINDOW)
    codes = torch.where(is_out, 0, bits & 0x807F | offsets << 7)

    halves = by_slot(codes.long()).view(-1, RECORD_WORDS, 4, 2)
    pairs = halves[..., 0] | halves[..., 1] << 16
    # The four registers' bits of a plane lie apart: their sum is their union.
    planes = [
        torch.stack([rotate_right(pairs[..., r] & mask, 4 * r) for r in range(4)]).sum(0) for mask in MASKS
    ]
    is_out, slot_bits = by_slot(is_out.long()).bool(), by_slot(bits.long())
    found = is_out.nonzero()[:, 1] << 16 | slot_bits[is_out]
    padded = torch.nn.functional.pad(bases, (0, row_tiles * RECORD_ROWS - num_rows))
    return warps_together(as_int32(torch.stack(planes, 1))), padded.to(torch.uint8), found, is_out.sum(1)


def _arrange(
    shape: tuple[int, int], records: Tensor, bases: Tensor, escapes: Tensor, counts: Tensor
) -> DeviceW12:
    """Records in the device's order; escapes, and how many every record has, in the file's."""
    place = in_device_order(torch.arange(len(counts), device=counts.device), shape).argsort()
    place_of_escape = place.repeat_interleave(counts.long())
    ordered = escapes[place_of_escape.argsort(stable=True)]
    slots = _slots(ordered, in_device_order(counts.long(), shape))
    return DeviceW12(shape, records, bases, slots, ordered)


def _slots(escapes: Tensor, counts: Tensor) -> Tensor:
    record_of = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    values = escapes.long() & 0xFFFFFFFF
    # Escapes of a record stand in the order of their slots, so those of a warp are neighbours.
    found = torch.bincount(record_of * WARPS + (values >> 26), minlength=len(counts) * WARPS)
    first = found.cumsum(0) - found
    slots = torch.full((len(found), 2), NO_ESCAPE, dtype=torch.int64, device=counts.device)
    for i in range(2):
        has = (found > i) & (found <= 2)
        slots[has, i] = values[first[has] + i]
    is_list = found > 2
    slots[is_list] = torch.stack([ESCAPE_LIST + found[is_list], first[is_list]], 1)
    return as_int32(slots).view(-1, WARPS, 2)


def slot_escapes(slots: Tensor, escapes: Tensor) -> tuple[Tensor, Tensor]:
    """What slots, int32 (..., 8, 2), say: all their escapes, int32, and how many each warp has, int64 (..., 8)."""
    words = slots.reshape(-1, 2).long() & 0xFFFFFFFF
    is_list = words[:, 0] >> 30 == ESCAPE_LIST >> 30
    counts = torch.where(is_list, words[:, 0] - ESCAPE_LIST, (words != NO_ESCAPE).sum(1))
    warp = torch.arange(len(words), device=words.device).repeat_interleave(counts)
    i = torch.arange(len(warp), device=words.device) - (counts.cumsum(0) - counts)[warp]
    found = as_int32(words[warp, i.clamp(max=1)])
    of_list = is_list[warp]
    found[of_list] = escapes[words[warp[of_list], 1] + i[of_list]]
    return found, counts.view(slots.shape[:-1])
