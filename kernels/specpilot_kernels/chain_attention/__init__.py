"""Gated attention of a chain of rows over a key and value cache: all between the two projections, in one call."""

from specpilot_kernels.chain_attention.ops import chain_attention

__all__ = ["chain_attention"]
