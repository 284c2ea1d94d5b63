"""What :func:`specpilot_kernels.rms_norm.rms_norm` computes, slow and obvious."""

from __future__ import annotations

from torch import Tensor

__all__ = ["rms_norm_reference"]


def rms_norm_reference(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * scale over the last axis, in the dtype of x."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * scale
