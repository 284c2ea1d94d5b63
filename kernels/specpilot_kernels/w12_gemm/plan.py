"""Which of the sm90 kernels multiplies, a pure function of the shape, for every form of records: measurements of W12 on
an H200 (NOTES.md) as rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from specpilot_kernels.w12.layout import RECORD_COLUMNS, num_records

__all__ = ["Kernel", "Plan", "plan_product"]

_MULTIPROCESSORS = 132
_CLUSTERS_AT_ONCE = {2: 132, 3: 79, 4: 62, 5: 47, 6: 39, 7: 32, 8: 30}
"""Clusters of so many blocks, two on a multiprocessor, that an H200 runs at once: it has not the same number in every
group of multiprocessors."""
_BLOCKS_BY_WARPS = {4: 6, 6: 4, 8: 3}
"""Blocks of few rows on a multiprocessor."""
_MANY_ROW_TILES = 600
"""From here on, above 16 rows, blocks that the hardware hands out, one a row tile, are faster than streams: they even
out that multiprocessors differ."""


class Kernel(IntEnum):
    """Numbers of the C interface (``sm90.cu``)."""

    FEW_ROWS = 0
    """Blocks, or clusters of two, of 16 rows of W; plain loads."""
    SPLIT = 1
    """The blocks of a cluster share the columns of one row tile; bulk copies."""
    STREAM = 2
    """All records in equal stretches for as many blocks as run at once; bulk copies."""


@dataclass(frozen=True)
class Plan:
    """A kernel, how many blocks share the columns of the same rows of W, and the warps of a block of few rows."""

    kernel: Kernel
    split: int = 1
    warps: int = 0

    @property
    def code(self) -> int:
        """As the C interface takes it."""
        return int(self.kernel) + 16 * self.split + 256 * self.warps


def plan_product(num_rows: int, shape: tuple[int, int]) -> Plan:
    """The plan for x of ``num_rows`` rows and a weight (N, K).

    The same on every device and for all numbers of rows of a class (1 to 8, 9 to 16, 17 to 64): sums keep their order.
    """
    row_tiles, column_tiles = num_records(shape)
    if num_rows <= 16 and shape[1] % RECORD_COLUMNS == 0:
        plan = _few_rows(num_rows <= 8, row_tiles)
        if plan is not None:
            return plan
    if row_tiles > 2 * _MULTIPROCESSORS and (num_rows <= 16 or row_tiles < _MANY_ROW_TILES):
        return Plan(Kernel.STREAM)
    return Plan(Kernel.SPLIT, min(column_tiles, _split(num_rows <= 16, row_tiles)))


def _few_rows(is_fewest: bool, row_tiles: int) -> Plan | None:
    sixteens = 8 * row_tiles
    if 2 * sixteens <= (6 if is_fewest else 5) * _MULTIPROCESSORS:  # pairs of blocks, and all run at once
        return Plan(Kernel.FEW_ROWS, 2, 4)
    if not is_fewest:
        return Plan(Kernel.FEW_ROWS, 1, 6) if sixteens <= 3 * _MULTIPROCESSORS else None

    def last_wave(warps: int) -> float:
        """How full the places for blocks are, on average over the waves in which they run."""
        waves = sixteens / (_MULTIPROCESSORS * _BLOCKS_BY_WARPS[warps])
        return waves / math.ceil(waves)

    return Plan(Kernel.FEW_ROWS, 1, max(_BLOCKS_BY_WARPS, key=last_wave))


def _split(is_few: bool, row_tiles: int) -> int:
    """As many blocks for a row tile as all row tiles together can have at once."""
    if row_tiles > 99:
        return 1
    if 48 <= row_tiles <= _MULTIPROCESSORS // 2:  # a multiprocessor of its own for every block
        return 2
    if is_few:  # three blocks on a multiprocessor
        return min(8, 210 // row_tiles)
    return max(split for split, clusters in _CLUSTERS_AT_ONCE.items() if row_tiles <= clusters)
