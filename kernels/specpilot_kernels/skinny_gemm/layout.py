"""How a weight matrix lies in memory for :func:`specpilot_kernels.skinny_gemm.skinny_gemm`.

A weight W, (N, K), is cut into panels of 16 output columns; panel p holds at [p, k] the 16 numbers W[16 p + n, k],
so the product walks a panel from its first to its last byte. Columns beyond N, up to the next multiple of 64, are
zero: a single row takes four panels at once.

Float32 numbers lie in the order of n. BF16 numbers, as their 16 bits, lie in the order 0, 8, 1, 9, ..., 7, 15: read
as words of 32 bits, the lower halves are the columns 0 to 7 and the upper halves the columns 8 to 15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["GROUP_PANELS", "PANEL_COLUMNS", "ElementType", "PackedWeight"]

PANEL_COLUMNS = 16
"""Output columns of a panel: one AVX-512, two AVX2 or four NEON registers of float32."""
GROUP_PANELS = 4
"""The number of panels is a multiple of this."""
_GROUP_COLUMNS = GROUP_PANELS * PANEL_COLUMNS
_ROWS_AT_ONCE = 32 * _GROUP_COLUMNS

ElementType = Literal["bfloat16", "float32"]


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight matrix in panels. Never written to after :meth:`pack`, so threads may share it.

    Attributes
    ----------
    panels : array, uint16 (BF16 bits) or float32, (4 ceil(N / 64), K, 16), contiguous
    num_columns : int
        N, the outputs.
    """

    panels: NDArray[np.uint16] | NDArray[np.float32]
    num_columns: int

    @classmethod
    def pack(cls, *weights: Tensor, element_type: ElementType | Literal["auto"] = "auto") -> PackedWeight:
        """Pack one weight, or several one above the other as one.

        Parameters
        ----------
        weights : Tensor, float32 or bfloat16, (N_i, K), CPU
            As ``torch.nn.Linear`` stores it: a row for every output.
        element_type
            "bfloat16" refuses numbers that BF16 cannot hold exactly. "auto" takes bfloat16 where every number
            allows it, else float32; :attr:`element_type` tells which.

        Raises
        ------
        ValueError
            No weight, wrong dtype, device or shape, or a number that does not fit ``element_type``.
        """
        _check(weights)
        rows = (
            weights[0].detach() if len(weights) == 1 else torch.cat([weight.detach() for weight in weights])
        )
        is_wide = element_type == "float32"
        if not is_wide and rows.dtype != torch.bfloat16:
            is_wide = any((_bits(part) & 0xFFFF).any() for part in rows.split(_ROWS_AT_ONCE))
        if element_type == "bfloat16" and is_wide:
            has_low_bits = (_bits(rows) & 0xFFFF) != 0
            row, k = np.argwhere(has_low_bits)[0].tolist()
            raise ValueError(
                f"weight: {int(has_low_bits.sum())} numbers are no BF16 numbers, the first is "
                f"{rows.numpy()[row, k]!r} at ({row}, {k}); pack with element_type='float32' or 'auto'"
            )
        shape = (-(-rows.shape[0] // _GROUP_COLUMNS) * GROUP_PANELS, rows.shape[1], PANEL_COLUMNS)
        panels = np.empty(shape, np.float32 if is_wide else np.uint16)
        # In parts, so that a large weight does not lie in memory several times over.
        for first in range(0, rows.shape[0], _ROWS_AT_ONCE):
            part = _panels(_bits(rows[first : first + _ROWS_AT_ONCE]))
            here = slice(first // PANEL_COLUMNS, first // PANEL_COLUMNS + len(part))
            if is_wide:
                panels[here] = part.view(np.float32)
            else:
                low, high = np.split(part, 2, axis=2)
                panels[here] = (low >> 16 | high).view(np.uint16)
        return cls(panels, rows.shape[0])

    @property
    def element_type(self) -> ElementType:
        return "bfloat16" if self.panels.dtype == np.uint16 else "float32"

    @property
    def num_inputs(self) -> int:
        """K."""
        return int(self.panels.shape[1])

    @property
    def memory_bytes(self) -> int:
        return self.panels.nbytes

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of the weight, float32, (len(indices), K), new memory: the look-up of a tied embedding."""
        panels, lane = indices // PANEL_COLUMNS, indices % PANEL_COLUMNS
        if self.panels.dtype == np.uint16:
            half = PANEL_COLUMNS // 2
            bits = self.panels[panels, :, lane % half * 2 + lane // half]
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return np.array(self.panels[panels, :, lane], np.float32)

    def unpack(self) -> Tensor:
        """The weight again, float32, (N, K), new memory."""
        panels = self.panels
        if panels.dtype == np.uint16:
            words = panels.view(np.uint32)
            panels = np.concatenate((words << 16, words & 0xFFFF0000), 2).view(np.float32)
        rows = panels.transpose(0, 2, 1).reshape(-1, self.num_inputs)[: self.num_columns]
        return torch.from_numpy(np.array(rows))


def _bits(rows: Tensor) -> NDArray[np.uint32]:
    """The bits of the numbers as float32."""
    return rows.float().numpy().view(np.uint32)


def _panels(rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """(N, K) -> (panels, K, 16), zero padded."""
    num_columns, num_inputs = rows.shape
    padded = np.zeros((-(-num_columns // _GROUP_COLUMNS) * _GROUP_COLUMNS, num_inputs), rows.dtype)
    padded[:num_columns] = rows
    return np.ascontiguousarray(padded.reshape(-1, PANEL_COLUMNS, num_inputs).transpose(0, 2, 1))


def _check(weights: tuple[Tensor, ...]) -> None:
    if not weights:
        raise ValueError("weight: got none, expected at least one")
    for weight in weights:
        if weight.dtype not in (torch.float32, torch.bfloat16) or weight.device.type != "cpu":
            raise ValueError(
                f"weight: got {weight.dtype} on {weight.device}, expected float32 or bfloat16 on the CPU"
            )
        if weight.ndim != 2 or 0 in weight.shape or weight.shape[1] != weights[0].shape[-1]:
            raise ValueError(
                f"weight: got shape {tuple(weight.shape)} beside {tuple(weights[0].shape)}, expected (N, K) with "
                "N and K at least 1 and the same K"
            )
