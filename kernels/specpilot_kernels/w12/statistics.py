"""What W12 makes of the tensors of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot_kernels.w12.container import W12File
from specpilot_kernels.w12.format import DENSE
from specpilot_kernels.w12.ops import decode_w12

__all__ = ["GroupStatistics", "TensorStatistics", "group_by_layer", "read_statistics"]

_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|blk|h)\.(\d+)\.")


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """One tensor.

    Attributes
    ----------
    name, dtype, shape
        Of the original.
    num_numbers, original_bytes, stored_bytes
    num_escapes
        None when the tensor is stored as it was.
    bases : array, uint8, (N,)
        First exponent field of every row's window; empty when dense.
    exponents : array, int64, (256,)
        How often every exponent field occurs; empty when dense or not asked for.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_numbers: int
    original_bytes: int
    stored_bytes: int
    num_escapes: int | None
    bases: NDArray[np.uint8]
    exponents: NDArray[np.int64]

    @property
    def base_range(self) -> tuple[int, int]:
        """Lowest and highest base, those of rows of zeros left out where there are others."""
        used = self.bases[self.bases > 0]
        return (int(used.min()), int(used.max())) if len(used) else (0, 0)


@dataclass(frozen=True)
class GroupStatistics:
    """Encoded tensors together.

    ``first_base`` to ``last_base`` are the windows' first exponent fields. Windows that begin at 0, those of rows of
    zeros, are left out where there are others.
    """

    name: str
    num_tensors: int
    num_weights: int
    bits_per_weight: float
    escape_rate: float
    first_base: int
    last_base: int


def read_statistics(file: Path, *, has_exponents: bool = False) -> Iterator[TensorStatistics]:
    """Of all tensors of a ``.w12`` file, in the order of the original bytes; raises as :class:`W12File` does."""
    with W12File(file) as encoded:
        for name, original in encoded.originals.items():
            record = encoded.records[name]
            bases, exponents = np.empty(0, np.uint8), np.empty(0, np.int64)
            if record.layout != DENSE:
                weight = encoded.weight(name)
                bases = weight.bases[: record.shape[0]].copy()
                if has_exponents:
                    bits = decode_w12(weight).view(torch.int16).numpy().reshape(-1)
                    exponents = np.bincount(bits >> 7 & 255, minlength=256)
            num_numbers = int(np.prod(record.shape, dtype=np.int64))
            yield TensorStatistics(
                name, record.dtype, record.shape, num_numbers, original.num_bytes, encoded.stored_bytes(name),
                record.escapes, bases, exponents,
            )  # fmt: skip


def group_by_layer(tensors: Iterable[TensorStatistics]) -> list[GroupStatistics]:
    """Encoded tensors by layer; those of no layer stand alone, by name."""
    groups: dict[str, list[TensorStatistics]] = {}
    for tensor in tensors:
        if tensor.num_escapes is not None:
            found = _LAYER.search(tensor.name)
            groups.setdefault(f"layer {found[1]}" if found else tensor.name, []).append(tensor)
    in_order = sorted(groups.items(), key=lambda item: _place(item[0]))
    return [_together(name, members) for name, members in in_order]


def _place(name: str) -> tuple[bool, int, str]:
    is_layer = name.startswith("layer ")
    return is_layer, int(name.split()[1]) if is_layer else 0, name


def _together(name: str, members: Sequence[TensorStatistics]) -> GroupStatistics:
    num_weights = sum(tensor.num_numbers for tensor in members)
    return GroupStatistics(
        name,
        len(members),
        num_weights,
        8 * sum(tensor.stored_bytes for tensor in members) / num_weights,
        sum(tensor.num_escapes or 0 for tensor in members) / num_weights,
        min(tensor.base_range[0] for tensor in members),
        max(tensor.base_range[1] for tensor in members),
    )
