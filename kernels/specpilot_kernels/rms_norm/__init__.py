"""Root-mean-square norm of rows on the CPU."""

from specpilot_kernels.rms_norm.ops import rms_norm

__all__ = ["rms_norm"]
