"""What :func:`specpilot_kernels.skinny_gemm.skinny_gemm` computes, slow and obvious."""

from __future__ import annotations

from torch import Tensor

__all__ = ["skinny_gemm_reference"]


def skinny_gemm_reference(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T in float64: (M, K), (N, K) -> (M, N)."""
    return x.double() @ weight.double().t()
