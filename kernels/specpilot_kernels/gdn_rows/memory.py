"""What a sequence keeps of its Gated DeltaNet layers, and how rows of several sequences are told to the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_memory import address_of
from specpilot_kernels.row_tree import RowTree

__all__ = ["GdnMemory", "GdnPart", "GdnSegments", "GdnShape"]


@dataclass(frozen=True)
class GdnShape:
    """Sizes of a layer: G key heads of d_k channels, R value heads of d_v channels for each of them."""

    num_groups: int
    per_group: int
    key_dim: int
    value_dim: int
    conv_size: int

    @property
    def num_heads(self) -> int:
        return self.num_groups * self.per_group

    @property
    def width(self) -> int:
        """Columns of a group's state, R d_v."""
        return self.per_group * self.value_dim

    @property
    def num_channels(self) -> int:
        """Of the convolution, C: query and key of every group in turn, then the values of all heads."""
        return 2 * self.num_groups * self.key_dim + self.num_groups * self.width

    def num_pending(self, num_rows: int) -> int:
        """Numbers that a layer keeps of undecided rows: convolution inputs, keys, written vectors, decays."""
        a_row = self.num_channels + self.num_groups * (self.key_dim + self.width + self.per_group)
        return (self.conv_size - 1) * self.num_channels + num_rows * a_row


class GdnMemory:
    """State of one sequence in all its layers, zero at first. Written by the kernels; used by one thread at a time.

    Attributes
    ----------
    recurrent : array, float32, (layers, G, d_k, R d_v)
        After the decided rows.
    window : array, float32, (layers, conv size - 1, C)
        Convolution inputs of the last decided rows, oldest first.
    pending : array, float32, one-dimensional
        What undecided rows wrote, one layer behind the other, until they are decided.
    """

    def __init__(self, num_layers: int, shape: GdnShape) -> None:
        self.num_layers, self.shape = num_layers, shape
        self.recurrent = np.zeros((num_layers, shape.num_groups, shape.key_dim, shape.width), np.float32)
        self.window = np.zeros((num_layers, shape.conv_size - 1, shape.num_channels), np.float32)
        self.pending = np.empty(0, np.float32)

    @property
    def memory_bytes(self) -> int:
        return self.recurrent.nbytes + self.window.nbytes + self.pending.nbytes

    def make_room(self, num_rows: int) -> None:
        """For what ``num_rows`` undecided rows write. What rows before wrote is lost."""
        size = self.num_layers * self.shape.num_pending(num_rows)
        if self.pending.size < size:
            self.pending = np.empty(size, np.float32)


@dataclass(frozen=True, eq=False)
class GdnPart:
    """Rows of one sequence among those of others. Decided rows advance the state at once.

    Without a tree the rows follow each other; with one each follows its parent. A tree is never decided.
    """

    memory: GdnMemory
    num_rows: int
    is_decided: bool
    tree: RowTree | None = None


class GdnSegments:
    """Which rows belong to which sequence, as the kernels read it.

    Attributes
    ----------
    parts : tuple of GdnPart
    tables : array, int64, (layers, sequences, 7)
        First row, number of rows, addresses of state, window and pending rows (0 for decided ones), address of the
        tree's table (0 for a chain), slots its walk needs (1 for a chain).
    """

    def __init__(self, parts: Sequence[GdnPart]) -> None:
        """Every memory has room for its undecided rows (:meth:`GdnMemory.make_room`) and stands here once."""
        self.parts = tuple(parts)  # They keep the memory alive.
        self.shape = shape = parts[0].memory.shape
        num_layers = parts[0].memory.num_layers
        first, rows = 0, []
        for part in parts:
            memory, undecided = part.memory, not part.is_decided
            size = shape.num_pending(part.num_rows)
            if memory.shape != shape or memory.num_layers != num_layers:
                raise ValueError(f"segments: got layers of {memory.shape} beside {shape}; expected one shape")
            if part.num_rows < 1 or (undecided and memory.pending.size < num_layers * size):
                raise ValueError(f"segments: no room for {part.num_rows} rows; expected make_room before")
            if part.tree is not None and (part.is_decided or part.tree.num_rows != part.num_rows):
                raise ValueError(
                    f"segments: got a tree of {part.tree.num_rows} rows for {part.num_rows}, decided: "
                    f"{part.is_decided}; expected as many undecided ones"
                )
            tree = (0, 1) if part.tree is None else (part.tree.address, part.tree.num_slots)
            pending = address_of(memory.pending) if undecided else 0
            addresses = address_of(memory.recurrent), address_of(memory.window), pending
            layer_bytes = memory.recurrent[0].nbytes, memory.window[0].nbytes, 4 * size if undecided else 0
            rows.append(((first, part.num_rows, *addresses, *tree), (0, 0, *layer_bytes, 0, 0)))
            first += part.num_rows
        self.num_rows = first
        table = np.array(rows, np.int64)
        layers = np.arange(num_layers)[:, None, None]
        self.tables: NDArray[np.int64] = np.ascontiguousarray(table[:, 0] + layers * table[:, 1])
