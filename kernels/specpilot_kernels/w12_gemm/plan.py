"""Which of the sm90 kernels multiplies, a pure function of the shape: measurements on an H200 (NOTES.md) as rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from specpilot_kernels.w12.layout import RECORD_COLUMNS, num_records

__all__ = ["Kernel", "Plan", "plan_product"]

_MULTIPROCESSORS = 132
_MANY_RECORDS = 100_000
_LARGEST_CLUSTER = 8


class Kernel(IntEnum):
    """Numbers of the C interface (``sm90.cu``)."""

    FEW_ROWS = 0
    """Blocks, or clusters of two, of 16 rows of W; plain loads."""
    SPLIT_RING = 1
    """The blocks of a cluster share the columns of one row tile (up to 16 rows of x) or two; bulk copies."""
    STREAM = 2
    """All records in equal stretches for as many blocks as run at once; bulk copies."""


@dataclass(frozen=True)
class Plan:
    """A kernel, and how many blocks share the columns of the same rows of W."""

    kernel: Kernel
    split: int = 1

    @property
    def code(self) -> int:
        """As the C interface takes it."""
        return int(self.kernel) + 16 * self.split


def plan_product(num_rows: int, shape: tuple[int, int]) -> Plan:
    """The plan for x of ``num_rows`` rows and a weight (N, K).

    The same on every device and for all numbers of rows of a class (1 to 8, 9 to 16, 17 to 64): sums keep their order.
    """
    row_tiles, column_tiles = num_records(shape)
    if shape[1] % RECORD_COLUMNS or row_tiles * column_tiles >= _MANY_RECORDS:
        return Plan(Kernel.STREAM)
    if num_rows <= 8:
        # Two blocks for the same 16 rows, where all then run at once: no multiprocessor has many more than another.
        return Plan(Kernel.FEW_ROWS, 2 if 16 * row_tiles <= 6 * _MULTIPROCESSORS else 1)
    if num_rows <= 16:
        if 16 * row_tiles <= 5 * _MULTIPROCESSORS:
            return Plan(Kernel.FEW_ROWS, 2)
        if row_tiles > _MULTIPROCESSORS:
            return Plan(Kernel.STREAM)
        return Plan(Kernel.SPLIT_RING, 2 if 2 * row_tiles <= _MULTIPROCESSORS else 1)
    pairs = -(-row_tiles // 2)
    if pairs > _MULTIPROCESSORS // 2:
        return Plan(Kernel.STREAM)
    split = 1
    while 2 * split <= min(column_tiles, _LARGEST_CLUSTER) and 2 * split * pairs <= _most_blocks(2 * split):
        split *= 2
    return Plan(Kernel.SPLIT_RING, split)


def _most_blocks(cluster: int) -> int:
    """Blocks that run at once, one a multiprocessor: larger clusters leave some of a group of multiprocessors idle."""
    return _MULTIPROCESSORS if cluster <= 2 else 120
