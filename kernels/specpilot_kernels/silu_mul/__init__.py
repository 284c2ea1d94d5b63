"""The gate of a gated feed-forward block on the CPU."""

from specpilot_kernels.silu_mul.ops import silu_mul

__all__ = ["silu_mul"]
