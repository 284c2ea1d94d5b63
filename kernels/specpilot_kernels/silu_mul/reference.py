"""What :func:`specpilot_kernels.silu_mul.silu_mul` computes, slow and obvious."""

from __future__ import annotations

from torch import Tensor

__all__ = ["silu_mul_reference"]


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """g / (1 + exp(-g)) * u for the two halves g, u of the last axis, in the dtype of the argument."""
    gate, up = gate_up.chunk(2, -1)
    return gate / (1 + (-gate).exp()) * up
