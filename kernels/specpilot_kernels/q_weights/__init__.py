"""Weights as small integers with a scale for every row, and their product with few rows."""

from specpilot_kernels.q_weights.layout import NUM_BITS, NumBits, QWeight
from specpilot_kernels.q_weights.ops import dequantise, q_matmul, quantise

__all__ = ["NUM_BITS", "NumBits", "QWeight", "dequantise", "q_matmul", "quantise"]
