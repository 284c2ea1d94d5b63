"""Keys and values of a sequence, and how rows of several sequences are told to the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_memory import address_of
from specpilot_kernels.row_tree import RowTree

__all__ = ["KV_BLOCK_TOKENS", "KvMemory", "KvPart", "KvSegments"]


KV_BLOCK_TOKENS = 256
"""Caches grow in steps of this many tokens, doubling once they are larger."""


class KvMemory:
    """Keys and values of one sequence in all its attention layers.

    They grow up to ``max_tokens``, and past it where the rows of a tree, which take a slot each, do not fit.

    Attributes
    ----------
    buffer : array, float32, (layers, 2, G, capacity, d)
        Keys, then values. What stands behind the rows of the sequence is scratch.
    """

    def __init__(self, num_layers: int, num_groups: int, dim: int, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        capacity = min(KV_BLOCK_TOKENS, max_tokens)
        self.buffer = np.zeros((num_layers, 2, num_groups, capacity, dim), np.float32)

    @property
    def capacity(self) -> int:
        return self.buffer.shape[3]

    @property
    def memory_bytes(self) -> int:
        return self.buffer.nbytes

    def reserve(self, num_tokens: int) -> None:
        """Make room for so many tokens and rows in all; the ones held move along."""
        held = self.capacity
        if num_tokens > held:
            wanted = -(-max(num_tokens, 2 * held) // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS
            layers, two, groups, _, dim = self.buffer.shape
            capacity = min(wanted, max(num_tokens, self._max_tokens))
            larger = np.zeros((layers, two, groups, capacity, dim), np.float32)
            larger[:, :, :, :held] = self.buffer
            self.buffer = larger

    def keep_path(self, position: int, rows: NDArray[np.int64]) -> None:
        """Move what rows wrote to where it stands in a chain: row ``rows[i]`` from ``position + rows[i]`` to
        ``position + i``. ``rows`` increases."""
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        if len(moved):
            # What is indexed by an array is copied before it is written.
            self.buffer[:, :, :, position + moved] = self.buffer[:, :, :, position + rows[moved]]


@dataclass(frozen=True, eq=False)
class KvPart:
    """Rows of one sequence among those of others; the first stands at ``position``.

    Each takes a slot of the cache, in order. Without a tree they follow each other; with one, row i stands at
    ``position`` plus its depth and sees, after the tokens before ``position``, its path from the root.
    """

    memory: KvMemory
    num_rows: int
    position: int
    tree: RowTree | None = None


class KvSegments:
    """Which rows belong to which sequence, as the kernel reads it.

    Attributes
    ----------
    tables : array, int64, (layers, sequences, 7)
        First row, number of rows, position of the first, addresses of keys and values, capacity, address of the
        tree's table (0 for a chain).
    num_rows, num_positions, num_seen : int
        Rows of all sequences; the highest position, plus one; rows times tokens before them, for the choice of threads.
    """

    def __init__(self, parts: Sequence[KvPart]) -> None:
        """Every memory has room for its rows and stands here once."""
        self._parts = parts  # They keep the memory alive.
        num_layers, _, self.num_groups, _, self.dim = parts[0].memory.buffer.shape
        self.num_rows, self.num_positions, self.num_seen = 0, 0, 0
        rows = []
        for part in parts:
            buffer, capacity, end = part.memory.buffer, part.memory.capacity, part.position + part.num_rows
            if (len(buffer), buffer.shape[2], buffer.shape[4]) != (num_layers, self.num_groups, self.dim):
                raise ValueError(
                    f"segments: got keys and values {buffer.shape}, expected the same but for the capacity"
                )
            if part.num_rows < 1 or part.position < 0 or end > capacity:
                raise ValueError(
                    f"position: got {part.num_rows} rows at {part.position}, expected rows from 0 to {capacity}, the "
                    "capacity of the cache"
                )
            tree, height = 0, part.num_rows
            if part.tree is not None:
                tree, height = part.tree.address, part.tree.height
                if part.tree.num_rows != part.num_rows:
                    raise ValueError(
                        f"segments: got a tree of {part.tree.num_rows} rows, expected {part.num_rows}"
                    )
            address, half = address_of(buffer), 4 * self.num_groups * capacity * self.dim
            rows.append(
                (
                    (self.num_rows, part.num_rows, part.position, address, address + half, capacity, tree),
                    (0, 0, 0, 2 * half, 2 * half, 0, 0),
                )
            )
            self.num_rows += part.num_rows
            self.num_positions = max(self.num_positions, part.position + height)
            self.num_seen += part.num_rows * end
        table = np.array(rows, np.int64)
        layers = np.arange(num_layers)[:, None, None]
        self.tables: NDArray[np.int64] = np.ascontiguousarray(table[:, 0] + layers * table[:, 1])
