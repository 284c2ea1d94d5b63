"""The products, slow and obvious: what the kernels are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.q_gemm.layout import DeviceQ, unpack_integers
from specpilot_kernels.q_weights.reference import q_matmul_reference
from specpilot_kernels.w12 import W12Weight

__all__ = ["q_gemm_reference", "w12_view_gemm_reference"]


def q_gemm_reference(x: Tensor, weight: DeviceQ) -> Tensor:
    """x (M, K) bfloat16 -> (M, N) float64, CPU, not rounded."""
    integers = unpack_integers(weight).cpu().numpy()
    return torch.from_numpy(
        q_matmul_reference(x.cpu().float().numpy(), integers, weight.scales.cpu().numpy())
    )


def w12_view_gemm_reference(x: Tensor, weight: W12Weight) -> Tensor:
    """x (M, K) bfloat16 -> (M, N) float64, CPU, not rounded."""
    from specpilot_kernels.w12 import view_w12  # compiles the codec

    return x.cpu().double() @ view_w12(weight).double().T
