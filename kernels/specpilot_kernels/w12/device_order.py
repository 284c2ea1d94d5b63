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
    "put_row_tiles",
    "record_band",
    "row_tiles",
    "warps_together",
]

BAND = 32
MOST_TILES_IN_BANDS = 600
WARPS = RECORD_ROWS // 16


def record_band(shape: tuple[int, int]) -> int:
    """Row tiles of a band of a weight of that shape."""
    return BAND if num_records(shape)[0] <= MOST_TILES_IN_BANDS else 1


def row_tiles(of_records: Tensor, shape: tuple[int, int], first: int, count: int) -> list[Tensor]:
    """Views of whole row tiles of (records, ...) in the device's order: (row tiles, column tiles, ...) each, one after
    the other. What is written to them stands in ``of_records``, which is contiguous."""
    all_rows, columns = num_records(shape)
    band = record_band(shape)
    if band == 1:
        return [of_records.unflatten(0, (all_rows, columns))[first : first + count]]
    views = []
    for begin in range(first - first % band, first + count, band):
        rows = min(band, all_rows - begin)
        of_band = of_records[begin * columns : (begin + rows) * columns].unflatten(0, (columns, rows))
        views.append(of_band.transpose(0, 1)[max(first - begin, 0) : first + count - begin])
    return views


def put_row_tiles(ordered: Tensor, of_records: Tensor, shape: tuple[int, int], first: int) -> None:
    """Write records of whole row tiles from ``first`` on, in the file's order, to their places in the device's."""
    if not len(of_records):
        return
    columns = num_records(shape)[1]
    tiles = of_records.unflatten(0, (len(of_records) // columns, columns))
    views = row_tiles(ordered, shape, first, len(tiles))
    for view, part in zip(views, tiles.split([len(view) for view in views]), strict=True):
        view.copy_(part)


def in_device_order(of_records: Tensor, shape: tuple[int, int]) -> Tensor:
    """(records, ...) of a weight of that shape, from the file's order to the device's."""
    ordered = torch.empty_like(of_records)
    put_row_tiles(ordered, of_records, shape, 0)
    return ordered


def in_file_order(
    of_records: Tensor, shape: tuple[int, int], first: int = 0, count: int | None = None
) -> Tensor:
    """The inverse of :func:`in_device_order`, of all row tiles or some, a dimension for each tile: (row tiles, column
    tiles, ...)."""
    views = row_tiles(of_records, shape, first, num_records(shape)[0] - first if count is None else count)
    return views[0] if len(views) == 1 else torch.cat(views)


def warps_together(planes: Tensor) -> Tensor:
    """Words of records, (..., 3, 1024) -> (..., 8, 3, 128)."""
    words: Tensor = planes.unflatten(-1, (WARPS, -1)).transpose(-3, -2)
    return words.contiguous()


def planes_together(words: Tensor) -> Tensor:
    """The inverse: (..., 8, 3, 128) -> (..., 3, 1024)."""
    return words.transpose(-3, -2).reshape(*words.shape[:-3], len(MASKS), RECORD_WORDS)
