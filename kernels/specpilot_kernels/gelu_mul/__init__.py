"""The gate of a feed-forward block with the tanh form of GELU, on the CPU."""

from specpilot_kernels.gelu_mul.ops import gelu_mul

__all__ = ["gelu_mul"]
