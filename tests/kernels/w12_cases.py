"""Weights for tests of products, and what a GPU test needs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specpilot_kernels.device import SupportedDevice, query_device
from specpilot_kernels.loader import BUILD_FOLDER, LIBRARY_NAME

__all__ = ["draw", "needs_gpu", "one_hot"]


def draw(
    shape: tuple[int, int], seed: int = 0, *, share_escaped: float = 0.02, infinities: bool = False
) -> Tensor:
    """Numbers of many sizes, zeros and denormals among them, bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(shape, generator=generator) * 0.02
    weight[torch.rand(shape, generator=generator) < share_escaped] *= 1e-12
    weight[torch.rand(shape, generator=generator) < share_escaped / 2] = 0.0
    if infinities:
        weight[torch.rand(shape, generator=generator) < 0.001] = float("inf")
    return weight.bfloat16()


def one_hot(rows: int, num_inputs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows with a single 1, bfloat16, and where it stands."""
    columns = torch.randint(0, num_inputs, (rows,), generator=torch.Generator().manual_seed(seed))
    x = torch.zeros(rows, num_inputs, dtype=torch.bfloat16)
    x[torch.arange(rows), columns] = 1
    return x, columns


def _why_no_gpu() -> str:
    found = query_device()
    if not isinstance(found, SupportedDevice):
        return found.reason
    return "" if (BUILD_FOLDER / LIBRARY_NAME).is_file() else "the kernels are not built: make kernels"


needs_gpu = pytest.mark.skipif(bool(_why_no_gpu()), reason=_why_no_gpu() or "-")
