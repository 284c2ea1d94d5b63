"""Words and places of records as tensors of any device: what the forms of a weight share."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from specpilot_kernels.w12.layout import RECORD_COLUMNS, RECORD_ROWS, num_records, place_of

__all__ = ["as_int32", "by_slot", "check_part", "from_slot", "rotate_right"]

_SLOTS = RECORD_ROWS * RECORD_COLUMNS


def by_slot(values: Tensor) -> Tensor:
    """(N, K) -> (records, 8192), numbers of a record in the order of slots; places outside the weight are zero."""
    num_rows, num_columns = values.shape
    row_tiles, column_tiles = num_records((num_rows, num_columns))
    missing = row_tiles * RECORD_ROWS - num_rows, column_tiles * RECORD_COLUMNS - num_columns
    whole = torch.nn.functional.pad(values, (0, missing[1], 0, missing[0]))
    tiles = whole.view(row_tiles, RECORD_ROWS, column_tiles, RECORD_COLUMNS).transpose(1, 2)
    return tiles.reshape(-1, _SLOTS)[:, _places(values.device)]


def from_slot(slots: Tensor, shape: tuple[int, int]) -> Tensor:
    """The inverse of :func:`by_slot`: (records, 8192) -> (N, K)."""
    row_tiles, column_tiles = num_records(shape)
    tiles = torch.empty_like(slots)
    tiles[:, _places(slots.device)] = slots
    whole = tiles.view(row_tiles, column_tiles, RECORD_ROWS, RECORD_COLUMNS).transpose(1, 2)
    return whole.reshape(row_tiles * RECORD_ROWS, -1)[: shape[0], : shape[1]].contiguous()


def check_part(
    name: str, part: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    """ValueError unless a part of a weight is what kernels read: contiguous, of that dtype, shape and device."""
    if part.dtype != dtype or part.shape != shape or part.device != device or not part.is_contiguous():
        raise ValueError(
            f"{name}: got {part.dtype} {tuple(part.shape)} strides {part.stride()} on {part.device}, expected "
            f"contiguous {dtype} {tuple(shape)} on {device}"
        )


def rotate_right(words: Tensor, count: int) -> Tensor:
    """Words of 32 bits in int64, by 0 to 32 bits."""
    return (words >> count | words << (32 - count)) & 0xFFFFFFFF


def as_int32(words: Tensor) -> Tensor:
    """The same 32 bits."""
    return (words - (words >> 31 << 32)).to(torch.int32)


@functools.cache
def _places(device: torch.device) -> Tensor:
    """For every slot, its place in a tile of 128 x 64."""
    n, k = place_of(torch.arange(_SLOTS, device=device))
    places: Tensor = n * RECORD_COLUMNS + k
    return places
