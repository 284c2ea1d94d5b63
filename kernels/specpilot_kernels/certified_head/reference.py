"""The certified head, slow and obvious: what the kernels are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.certified_head.bounds import DeviceHead
from specpilot_kernels.q_gemm.layout import unpack_integers

__all__ = ["argmax_reference", "bounds_reference", "survivors_reference"]


def bounds_reference(x: Tensor, head: DeviceHead) -> tuple[Tensor, Tensor]:
    """Screen and error bound of rows x (M, K) bfloat16: two of (M, V) float64."""
    wide = x.double()
    screen = (wide @ unpack_integers(head.copy).double().T) * head.copy.scales.double()
    bound = wide.norm(dim=1)[:, None] * head.bounds.double() + head.floors.double()
    return screen, bound


def survivors_reference(x: Tensor, head: DeviceHead) -> Tensor:
    """Which rows of the head may have the largest BF16 logit: (M, V) bool."""
    screen, bound = bounds_reference(x, head)
    upper, lower = (screen + bound).bfloat16(), (screen - bound).amax(1).bfloat16()
    return upper >= lower[:, None]


def argmax_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The lowest id of the largest BF16 logit, sums in float32: (M,) int64."""
    logits = (x.float() @ weight.float().T).bfloat16().float()
    is_largest = logits == logits.amax(1, keepdim=True)
    return is_largest.to(torch.int8).argmax(1)
