"""What blocks of a launch leave for each other."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.w12.layout import RECORD_ROWS
from specpilot_kernels.w12_gemm.plan import Kernel

__all__ = ["MOST_ROWS", "workspace"]

MOST_ROWS = 64
"""Rows of x of a launch."""


def workspace(kernel: Kernel, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """Partial sums and zeroed flags of a stream; other kernels need none.

    Made anew for every launch: kept ones would be shared by all graphs that were captured on one stream, whose replays
    need not follow each other.
    """
    if kernel is not Kernel.STREAM:
        return None, None
    num_blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    partials = torch.empty(num_blocks, MOST_ROWS, RECORD_ROWS, dtype=torch.float32, device=device)
    return partials, torch.zeros(num_blocks, dtype=torch.int32, device=device)
