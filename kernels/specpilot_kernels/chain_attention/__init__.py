"""Attention of rows over the caches of their sequences: all between the two projections, in one call."""

from specpilot_kernels.chain_attention.memory import KvMemory, KvPart, KvSegments
from specpilot_kernels.chain_attention.ops import batch_attention, chain_attention

__all__ = ["KvMemory", "KvPart", "KvSegments", "batch_attention", "chain_attention"]
