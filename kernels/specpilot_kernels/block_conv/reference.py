"""What :func:`specpilot_kernels.block_conv.block_conv` computes, slow and obvious."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["block_conv_reference"]


def block_conv_reference(x: Tensor, base: Tensor, delta: Tensor) -> Tensor:
    """Row by row, tap by tap, in the dtype of x; shapes as in ``block_conv``."""
    out = torch.zeros_like(x)
    for m in range(x.shape[0]):
        for back in range(min(base.shape[0], m + 1)):
            out[m] += (base[back] + delta[m, back, :, None]).flatten() * x[m - back]
    return out
