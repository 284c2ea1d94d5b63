"""The product, slow and obvious: what the kernels are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.w12 import W12Weight

__all__ = ["w12_gemm_reference"]


def w12_gemm_reference(x: Tensor, weight: W12Weight) -> Tensor:
    """x (M, K) bfloat16 -> (M, N) float64, not rounded."""
    from specpilot_kernels.w12 import decode_w12  # compiles the codec

    return x.cpu().to(torch.float64) @ decode_w12(weight).to(torch.float64).T
