"""Tensors into a ``.w12`` file, those that are encoded and those that stay as they are."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot_kernels.w12.format import (
    DENSE,
    LAYOUT,
    PIECE_BYTES,
    TensorRecord,
    part_shapes,
    rows_of_piece,
    stored_bytes,
    stored_parts,
)
from specpilot_kernels.w12.lanes import Lanes
from specpilot_kernels.w12.layout import W12Weight
from specpilot_kernels.w12.ops import encode_w12
from specpilot_kernels.w12.piece_writer import PieceWriter, as_bytes
from specpilot_kernels.w12.safetensors_file import DTYPE_BITS, SafetensorsFile, StoredTensor, WeightFileError

__all__ = ["TensorEncoder", "as_bfloat16", "header_line", "row_tiles"]


class TensorEncoder:
    """Writes the tensors of a ``.w12`` file, each by pieces.

    Parameters
    ----------
    reader
        The original file.
    writer
        Of the new one, at the first byte after the header.
    lanes
        Those of ``writer``.
    """

    def __init__(self, reader: SafetensorsFile, writer: PieceWriter, lanes: Lanes) -> None:
        self._reader, self._writer, self._lanes = reader, writer, lanes
        self._lines: dict[str, dict[str, Any]] = {}
        self._bases: list[tuple[str, NDArray[np.uint8]]] = []
        self._unfinished: dict[str, Callable[[], TensorRecord]] = {}

    def copy(self, tensor: StoredTensor) -> None:
        """As it is."""
        digest, begin = hashlib.sha256(), self._writer.at
        self._name(tensor.name, tensor.dtype, tensor.shape, begin, begin + tensor.num_bytes)
        for data in self._lanes.ahead("read", self._reader.pieces(tensor.name, PIECE_BYTES)):
            self._lanes.begin(data.nbytes)
            self._lanes.call("original", digest.update, data)
            self._writer.put(tensor.name, data)
        self._unfinished[tensor.name] = lambda: TensorRecord(
            tensor.dtype, tensor.shape, digest.hexdigest(), DENSE
        )

    def encode(self, tensor: StoredTensor) -> bool:
        """As W12, but for the bases, which stand last; or not, when that is no smaller."""
        shape = tensor.shape[0], tensor.shape[1]
        if stored_bytes(shape, 0) >= tensor.num_bytes:
            return False
        original, stored, begin = hashlib.sha256(), hashlib.sha256(), self._writer.at
        starts, escapes, bases = [np.zeros(1, np.uint32)], [], []

        def put(part: NDArray[Any]) -> None:
            if not part.size:
                return
            self._lanes.call("stored", stored.update, as_bytes(part))
            self._writer.put(tensor.name, part)

        for data, weight in self._encoded_pieces(tensor):
            self._lanes.call("original", original.update, data)
            records, tail, piece_starts, piece_escapes, piece_bases = stored_parts(weight)
            put(records)
            put(tail)  # The last piece alone has one.
            starts.append(starts[-1][-1] + piece_starts[1:])
            escapes.append(piece_escapes)
            bases.append(piece_bases)
        escape_list, base_list = np.concatenate(escapes), np.concatenate(bases)
        if stored_bytes(shape, len(escape_list)) >= tensor.num_bytes:
            self._writer.go_back(begin)
            return False
        put(np.concatenate((*starts, escape_list)))  # One call for many small tensors' sake.
        self._lanes.call("stored", stored.update, base_list)
        parts = part_shapes(shape, len(escape_list))
        for suffix, dtype, part_shape in parts[:-1]:
            end = begin + math.prod(part_shape) * DTYPE_BITS[dtype] // 8
            self._name(tensor.name + suffix, dtype, part_shape, begin, end)
            begin = end
        self._bases.append((tensor.name + parts[-1][0], base_list))
        self._unfinished[tensor.name] = lambda: TensorRecord(
            tensor.dtype, shape, original.hexdigest(), LAYOUT, len(escape_list), stored.hexdigest()
        )
        return True

    def finish(self) -> tuple[dict[str, TensorRecord], dict[str, dict[str, Any]]]:
        """Write the bases and wait; returns what the header says."""
        for name, bases in self._bases:
            begin = self._writer.at
            self._writer.put(name, bases)
            self._name(name, "U8", bases.shape, begin, self._writer.at)
        self._writer.end()
        return {name: record() for name, record in self._unfinished.items()}, self._lines

    def _name(self, name: str, dtype: str, shape: tuple[int, ...], begin: int, end: int) -> None:
        """Say what stands there."""
        if name in self._lines:
            raise WeightFileError(
                f"{self._reader.path}: {name}: there is a tensor of the name that an encoded one needs"
            )
        self._lines[name] = header_line(dtype, shape, begin, end)

    def _encoded_pieces(self, tensor: StoredTensor) -> Iterator[tuple[NDArray[np.uint8], W12Weight]]:
        for data in self._lanes.ahead("read", row_tiles(self._reader, tensor)):
            self._lanes.begin(2 * data.nbytes)  # An encoding is smaller, but for escapes.
            yield data, encode_w12(as_bfloat16(data, tensor.shape[1]))


def header_line(dtype: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
    """A line of a safetensors header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def row_tiles(reader: SafetensorsFile, tensor: StoredTensor) -> Iterator[Callable[[], NDArray[np.uint8]]]:
    """Calls that read a BF16 matrix, as many rows as are encoded at once."""
    return reader.pieces(tensor.name, 2 * tensor.shape[1] * rows_of_piece(tensor.shape[1]))


def as_bfloat16(data: NDArray[np.uint8], num_columns: int) -> torch.Tensor:
    """A matrix of the same memory."""
    return torch.from_numpy(data).view(torch.bfloat16).view(-1, num_columns)
