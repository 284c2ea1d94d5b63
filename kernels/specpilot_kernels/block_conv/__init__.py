"""Dynamic grouped convolution over the rows of a draft block on the CPU."""

from specpilot_kernels.block_conv.ops import block_conv

__all__ = ["block_conv"]
