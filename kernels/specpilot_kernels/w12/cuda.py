"""W12 weights on a device: encoded there, or brought there from the CPU, in the form that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specpilot_kernels.w12.layout import (
    LARGEST_BASE,
    MASKS,
    RECORD_ROWS,
    RECORD_WORDS,
    WINDOW,
    W12Weight,
    num_records,
)
from specpilot_kernels.w12.words import as_int32, by_slot, rotate_right

__all__ = ["NO_ESCAPE", "SEVERAL_ESCAPES", "DeviceW12", "encode_on_device", "to_device"]

NO_ESCAPE, SEVERAL_ESCAPES = 0xFFFFFFFF, 0xFFFFFFFE
_WARPS = RECORD_ROWS // 16
_CHUNK_ROWS = 16 * RECORD_ROWS


@dataclass(frozen=True, eq=False)
class DeviceW12:
    """:class:`specpilot_kernels.w12.W12Weight` as tensors of one device, 32-bit words as int32.

    Attributes
    ----------
    shape : (int, int)
    records : Tensor, int32, (records, 3, 1024)
    bases : Tensor, uint8, (row tiles * 128,)
    escapes : Tensor, int32, (escapes,)
    record_starts : Tensor, int32, (records + 1,)
    slots : Tensor, int32, (records, 8)
        For the 16 rows of each of a record's eight warps: the one escape among them, ``NO_ESCAPE``, or
        ``SEVERAL_ESCAPES``, which stand in the list alone.
    """

    shape: tuple[int, int]
    records: Tensor
    bases: Tensor
    escapes: Tensor
    record_starts: Tensor
    slots: Tensor

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The tensors in the order in which the kernels take them."""
        return self.records, self.bases, self.slots, self.escapes, self.record_starts

    @property
    def memory_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.parts)


def to_device(weight: W12Weight, device: torch.device | str) -> DeviceW12:
    """Copy an encoded weight."""

    def words(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.view(np.int32)).to(device)

    escapes, starts = words(weight.escapes), words(weight.record_starts)
    return DeviceW12(
        weight.shape,
        words(weight.records).view(-1, 3, RECORD_WORDS),
        torch.from_numpy(weight.bases).to(device),
        escapes,
        starts,
        _slots(escapes, starts),
    )


@torch.no_grad()
def encode_on_device(weight: Tensor) -> DeviceW12:
    """Encode a weight where it is; the same parts as :func:`specpilot_kernels.w12.encode_w12` gives.

    Parameters
    ----------
    weight : Tensor, bfloat16, (N, K), any device
        Takes about 20 times the memory of 2,048 of its rows for a while.

    Raises
    ------
    ValueError
        Another dtype or number of dimensions.
    """
    if weight.dtype != torch.bfloat16 or weight.ndim != 2:
        raise ValueError(f"weight: got {weight.dtype} {tuple(weight.shape)}, expected bfloat16 (N, K)")
    parts = [_encode_rows(weight[at : at + _CHUNK_ROWS]) for at in range(0, weight.shape[0], _CHUNK_ROWS)]
    records, bases, escapes, counts = (torch.cat(part) for part in zip(*parts, strict=True))
    starts = torch.zeros(len(counts) + 1, dtype=torch.int64, device=weight.device)
    starts[1:] = counts.cumsum(0)
    words, offsets = as_int32(escapes), starts.to(torch.int32)
    shape = weight.shape[0], weight.shape[1]
    return DeviceW12(shape, records, bases, words, offsets, _slots(words, offsets))


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
    return as_int32(torch.stack(planes, 1)), padded.to(torch.uint8), found, is_out.sum(1)


def _slots(escapes: Tensor, record_starts: Tensor) -> Tensor:
    counts = record_starts.diff().long()
    record_of = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    values = escapes.long() & 0xFFFFFFFF
    warp_of = record_of * _WARPS + (values >> 26)
    found = torch.bincount(warp_of, minlength=len(counts) * _WARPS)
    slots = torch.full((len(counts) * _WARPS,), NO_ESCAPE, dtype=torch.int64, device=counts.device)
    slots[warp_of] = values
    slots[found > 1] = SEVERAL_ESCAPES
    return as_int32(slots).view(-1, _WARPS)
