"""What :mod:`specpilot_kernels.layer_parts` computes, slow and obvious. Weights are (outputs, inputs)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["feed_forward_reference", "norm_project_reference", "project_add_reference"]


def norm_project_reference(x: Tensor, scale: Tensor, eps: float, weight: Tensor) -> Tensor:
    """Product of normed rows."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * scale @ weight.T


def project_add_reference(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Rows plus a product; new memory."""
    return x + y @ weight.T


def feed_forward_reference(x: Tensor, scale: Tensor, eps: float, gate_up: Tensor, down: Tensor) -> Tensor:
    """Rows plus the gated block of the normed rows; new memory."""
    gate, up = norm_project_reference(x, scale, eps, gate_up).chunk(2, -1)
    return x + torch.nn.functional.silu(gate) * up @ down.T
