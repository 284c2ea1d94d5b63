"""What blocks of a launch leave for each other."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from specpilot_kernels.w12.layout import RECORD_ROWS

__all__ = ["MOST_ROWS", "workspace"]

MOST_ROWS = 64
"""Rows of x of a launch."""


@functools.cache
def workspace(device_index: int, stream: int) -> tuple[Tensor, Tensor]:
    """Partial sums and flags, which are zero between launches; one of each for every stream, on which launches follow
    each other."""
    device = torch.device("cuda", device_index)
    num_blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    partials = torch.empty(num_blocks, MOST_ROWS, RECORD_ROWS, dtype=torch.float32, device=device)
    return partials, torch.zeros(num_blocks, dtype=torch.int32, device=device)
