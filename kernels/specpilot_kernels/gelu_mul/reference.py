"""What :func:`specpilot_kernels.gelu_mul.gelu_mul` computes, slow and obvious."""

from __future__ import annotations

import math

from torch import Tensor

__all__ = ["gelu_mul_reference"]


def gelu_mul_reference(gate_up: Tensor) -> Tensor:
    """g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) * u for the two halves g, u of the last axis."""
    gate, up = gate_up.chunk(2, -1)
    return gate / 2 * (1 + (math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)).tanh()) * up
