"""INT8 and INT6 copies of a weight where a GPU reads them: the one home of their bits.

Integers q of a weight (N, K), with W[n, k] about ``scales[n] * q[n, k]``, lie in records of 128 rows x 64 columns, in
the order of :mod:`specpilot_kernels.w12.device_order`. Where a number lies among threads t, steps s, registers r and
halves h of a record is what :mod:`specpilot_kernels.w12.layout` says. Words have 32 bits, little endian; the two
numbers of a register stand side by side in a word (h = 1 in the upper half), which is rotated right and put into a word
of a plane. Each of a record's eight warps has its words of the planes together, plane after plane, as W12 on devices.

**INT8**, 8,192 bytes. A number is sign and magnitude, bit 15 and bits 6..0 (mask 0x807F807F). Plane 0 has registers 0
and 1, plane 1 registers 2 and 3, the odd one rotated right by 8: word 4 t + s of a plane of 1,024.

**INT6**, 6,144 bytes. A number is q + 32, six bits. Its lower four (mask 0x000F000F) lie in a plane of 1,024 words,
word 4 t + s, its upper two (mask 0x00300030) in a plane of 512 words, word 2 t + (s >> 1); both rotated right by
4 r + 2 (s & 1).

**Padding** up to whole records is 0.

The layout is of devices alone: no file has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specpilot_kernels.q_weights.layout import NumBits
from specpilot_kernels.w12.device_order import WARPS, in_file_order
from specpilot_kernels.w12.layout import RECORD_COLUMNS, RECORD_ROWS, RECORD_WORDS, num_records
from specpilot_kernels.w12.words import as_int32, by_slot, check_part, from_slot, rotate_right

__all__ = ["MASKS", "PLANE_WORDS", "DeviceQ", "empty_records", "pack_integers", "unpack_integers"]

MASKS = {"int8": 0x807F807F, "int6_low": 0x000F000F, "int6_high": 0x00300030}
PLANE_WORDS: dict[NumBits, tuple[int, int]] = {
    8: (RECORD_WORDS, RECORD_WORDS),
    6: (RECORD_WORDS, RECORD_WORDS // 2),
}
"""32-bit words of a record's planes."""


@dataclass(frozen=True, eq=False)
class DeviceQ:
    """A quantised weight, (N, K), as tensors of one device.

    Attributes
    ----------
    shape : (int, int)
    num_bits
        8 or 6.
    records : Tensor, int32, (records, 2048 or 1536)
    scales : Tensor, float32, (N,)
        0 for a row of zeros.

    Raises
    ------
    ValueError
        A part has another dtype, shape or device, or is not contiguous.
    """

    shape: tuple[int, int]
    num_bits: NumBits
    records: Tensor
    scales: Tensor

    def __post_init__(self) -> None:
        row_tiles, column_tiles = num_records(self.shape)
        device, words = self.records.device, sum(PLANE_WORDS[self.num_bits])
        for name, dtype, shape in (
            ("records", torch.int32, (row_tiles * column_tiles, words)),
            ("scales", torch.float32, self.shape[:1]),
        ):
            check_part(name, getattr(self, name), dtype, shape, device)

    @property
    def memory_bytes(self) -> int:
        return 4 * self.records.numel() + 4 * self.scales.numel()


def empty_records(shape: tuple[int, int], num_bits: NumBits, device: torch.device) -> Tensor:
    """Room for the records of a weight (N, K)."""
    row_tiles, column_tiles = num_records(shape)
    return torch.empty(row_tiles * column_tiles, sum(PLANE_WORDS[num_bits]), dtype=torch.int32, device=device)


def pack_integers(integers: Tensor, num_bits: NumBits) -> Tensor:
    """int8 (N, K), any device -> records, int32 (records, words), row tile by row tile, columns ascending."""
    slots = by_slot(integers.to(torch.int64)).view(-1, RECORD_WORDS, 4, 2)  # word 4 t + s, register, half
    if num_bits == 8:
        numbers = slots.abs() | (slots < 0).long() << 15
        pairs = numbers[..., 0] | numbers[..., 1] << 16
        planes = [pairs[..., 2 * p] | rotate_right(pairs[..., 2 * p + 1], 8) for p in (0, 1)]
        return _warps_together(planes)
    numbers = slots + 32
    pairs = numbers[..., 0] | numbers[..., 1] << 16
    low, high = torch.zeros_like(pairs[..., 0]), torch.zeros_like(pairs[..., 0])
    for register in range(4):
        for odd in (0, 1):
            count = 4 * register + 2 * odd
            here = pairs[:, odd::2, register]
            low[:, odd::2] |= rotate_right(here & MASKS["int6_low"], count)
            high[:, odd::2] |= rotate_right(here & MASKS["int6_high"], count)
    return _warps_together([low, high[:, 0::2] | high[:, 1::2]])


def unpack_integers(weight: DeviceQ) -> Tensor:
    """The integers again, int8 (N, K)."""
    records = in_file_order(weight.records, weight.shape).flatten(0, 1).long() & 0xFFFFFFFF
    num_words = PLANE_WORDS[weight.num_bits]
    of_warps = records.unflatten(1, (WARPS, -1)).split([words // WARPS for words in num_words], 2)
    first, second = (plane.flatten(1) for plane in of_warps)
    pairs = torch.empty(len(records), RECORD_WORDS, 4, dtype=torch.int64, device=records.device)
    if weight.num_bits == 8:
        for register in range(4):
            plane = second if register // 2 else first
            pairs[..., register] = rotate_right(plane, 32 - 8 * (register & 1)) & MASKS["int8"]
    else:
        low, high = first, second.repeat_interleave(2, 1)
        for register in range(4):
            for odd in (0, 1):
                count = 32 - 4 * register - 2 * odd
                pairs[:, odd::2, register] = (rotate_right(low[:, odd::2], count) & MASKS["int6_low"]) | (
                    rotate_right(high[:, odd::2], count) & MASKS["int6_high"]
                )
    halves = torch.stack((pairs & 0xFFFF, pairs >> 16), -1)
    numbers = (halves & 127) * (1 - 2 * (halves >> 15)) if weight.num_bits == 8 else halves - 32
    return from_slot(numbers.view(len(records), RECORD_ROWS * RECORD_COLUMNS), weight.shape).to(torch.int8)


def _warps_together(planes: list[Tensor]) -> Tensor:
    """Planes of records, (records, words) each, to what a device holds of them."""
    return as_int32(torch.cat([plane.unflatten(1, (WARPS, -1)) for plane in planes], 2).flatten(1))
