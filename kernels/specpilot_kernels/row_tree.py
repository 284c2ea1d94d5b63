"""Rows of one sequence that form a tree, and the order in which a kernel walks it.

A row sees the committed tokens and the rows on its path from the root. A kernel that keeps a running state goes
through the tree depth first. State lies in *slots*: slot 0 begins as the committed state, a row reads the slot that
holds its parent's state and writes its own. A leaf writes none. Of a row's other children the one with the largest
subtree goes last and takes the parent's slot over, the others take the slot above. A slot more is thus taken only where
the subtree is at most half, so N rows never hold more than 1 + log2(N) slots; a chain holds one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_jit import kernel
from specpilot_kernels.cpu_memory import address_of

__all__ = [
    "CARRIES",
    "DEPTH",
    "NODE",
    "NUM_COLUMNS",
    "PARENT",
    "SOURCE",
    "TARGET",
    "RowTree",
    "is_path",
]

NUM_COLUMNS = 6
PARENT, DEPTH = 0, 1
"""Columns of a tree's table: of row i, its parent (-1 for the root) and its distance from the root."""

NODE, SOURCE, TARGET, CARRIES = 2, 3, 4, 5
"""Columns of the walk: of step i, the row that runs, the slot it reads, the slot it writes (-1 for a leaf), and whether
the next step's row reads a state at hand: the one this step writes or, for a leaf, the one it reads."""


class RowTree:
    """A tree of rows; row 0 is its root, the row after the committed tokens.

    Attributes
    ----------
    parents : array, int64, (N,)
        ``parents[0] == -1`` and ``0 <= parents[i] < i``.
    table : array, int64, (N, NUM_COLUMNS)
        What kernels read.
    height : int
        Rows on the longest path.
    num_slots : int
        Slots that a walk needs.
    """

    def __init__(self, parents: NDArray[np.int64]) -> None:
        """ValueError if ``parents`` is not as stated."""
        if parents.ndim != 1 or parents.dtype != np.int64 or not len(parents):
            raise ValueError(
                f"parents: got {parents.shape} {parents.dtype}, expected int64, (rows,), at least one row"
            )
        self.parents = np.ascontiguousarray(parents)
        self.table = np.empty((len(parents), NUM_COLUMNS), np.int64)
        wrong = int(_plan_walk(self.parents, self.table))
        if wrong >= 0:
            expected = "-1, the root's" if wrong == 0 else f"0 to {wrong - 1}, a row before it"
            raise ValueError(
                f"parents: got {int(parents[wrong])} for row {wrong} of {len(parents)}, expected {expected}"
            )
        self.height = int(self.table[:, DEPTH].max()) + 1
        self.num_slots = int(self.table[:, TARGET].max(initial=0)) + 1

    @property
    def num_rows(self) -> int:
        return len(self.parents)

    @property
    def address(self) -> int:
        """Of the table."""
        return address_of(self.table)


def is_path(rows: NDArray[np.int64], num_rows: int, tree: RowTree | None) -> bool:
    """Whether ``rows`` are rows of ``num_rows``, from row 0 on, each the parent of the next; no rows are a path.

    Without a tree every row is the parent of the one after it.
    """
    if rows.ndim != 1 or rows.dtype != np.int64 or not len(rows):
        return rows.ndim == 1 and rows.dtype == np.int64
    if rows[0] != 0 or rows.min() < 0 or rows.max() >= num_rows:
        return False
    parents = rows[1:] - 1 if tree is None else tree.parents[rows[1:]]
    return bool((parents == rows[:-1]).all())


@kernel("i8(i8[::1], i8[:,::1])")
def _plan_walk(parents: Any, table: Any) -> int:
    """Fill a tree's table; returns the first row whose parent is not a row before it, or -1."""
    num_rows = parents.shape[0]
    for row in range(num_rows):
        parent = parents[row]
        if parent >= row or parent < (0 if row else -1):
            return row
        table[row, PARENT] = parent
        table[row, DEPTH] = table[parent, DEPTH] + 1 if row else 0
    sizes = np.ones(num_rows, np.int64)
    for row in range(num_rows - 1, 0, -1):
        sizes[parents[row]] += sizes[row]
    # Rows that wait, with the slot they read and the one they write; the last one is next.
    waiting = np.empty((num_rows, 3), np.int64)
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, 0, 0 if num_rows > 1 else -1
    is_placed = np.zeros(num_rows, np.bool_)
    num_waiting = 1
    for step in range(num_rows):
        num_waiting -= 1
        node, source, target = waiting[num_waiting, 0], waiting[num_waiting, 1], waiting[num_waiting, 2]
        table[step, NODE], table[step, SOURCE], table[step, TARGET] = node, source, target
        table[step, CARRIES] = 0
        if step > 0:
            before = table[step - 1, NODE]
            is_leaf = table[step - 1, TARGET] < 0
            at_hand = parents[before] if is_leaf else before
            table[step - 1, CARRIES] = 1 if parents[node] == at_hand else 0
        # The largest subtree is put first, so that it comes last; leaves come first.
        slot = target
        while True:
            largest = -1
            for child in range(num_rows - 1, node, -1):
                if parents[child] != node or is_placed[child]:
                    continue
                if largest < 0 or sizes[child] > sizes[largest]:
                    largest = child
            if largest < 0:
                break
            is_placed[largest] = True
            waiting[num_waiting, 0], waiting[num_waiting, 1] = largest, target
            waiting[num_waiting, 2] = slot if sizes[largest] > 1 else -1
            slot = target + 1
            num_waiting += 1
    return -1
