"""Where a device holds the records of a W12 weight, and the words of a record: other places than in a file, because
kernels read memory in other steps (w12_gemm/NOTES.md has what that brings). ``record_order.cuh`` is the same in C++.

**Records.** Row tiles form bands of ``BAND``. A band's records lie column tile by column tile, all its row tiles of
each: blocks that multiply neighbouring row tiles at once then read memory in its order. Weights of more than
``MOST_TILES_IN_BANDS`` row tiles keep the file's order, row tile by row tile.

**Words.** The 16 rows of each of a record's eight warps have their words of the three planes together: (8, 3, 128).
"""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.w12.layout import MASKS, RECORD_ROWS, RECORD_WORDS, num_records

__all__ = [
    "BAND",
    "MOST_TILES_IN_BANDS",
    "WARPS",
    "in_device_order",
    "in_file_order",
    "planes_together",
    "record_band",
    "warps_together",
]

BAND = 32
MOST_TILES_IN_BANDS = 600
WARPS = RECORD_ROWS // 16


def record_band(shape: tuple[int, int]) -> int:
    """Row tiles of a band of a weight of that shape."""
    return BAND if num_records(shape)[0] <= MOST_TILES_IN_BANDS else 1


def in_device_order(of_records: Tensor, shape: tuple[int, int]) -> Tensor:
    """(records, ...) of a weight of that shape, from the file's order to the device's."""
    band = record_band(shape)
    if band == 1:
        return of_records
    bands = of_records.unflatten(0, num_records(shape)).split(band)
    return torch.cat([of_band.transpose(0, 1).flatten(0, 1) for of_band in bands])


def in_file_order(of_records: Tensor, shape: tuple[int, int]) -> Tensor:
    """The inverse of :func:`in_device_order`, a dimension for each tile: (row tiles, column tiles, ...)."""
    row_tiles, column_tiles = num_records(shape)
    band = record_band(shape)
    if band == 1:
        return of_records.view(row_tiles, column_tiles, *of_records.shape[1:])
    bands = of_records.split(band * column_tiles)
    return torch.cat([of_band.unflatten(0, (column_tiles, -1)).transpose(0, 1) for of_band in bands])


def warps_together(planes: Tensor) -> Tensor:
    """Words of records, (..., 3, 1024) -> (..., 8, 3, 128)."""
    words: Tensor = planes.unflatten(-1, (WARPS, -1)).transpose(-3, -2)
    return words.contiguous()


def planes_together(words: Tensor) -> Tensor:
    """The inverse: (..., 8, 3, 128) -> (..., 3, 1024)."""
    return words.transpose(-3, -2).reshape(*words.shape[:-3], len(MASKS), RECORD_WORDS)
