"""Keys and values of committed tokens into the caches of all layers of a drafter, in one call."""

from specpilot_kernels.context_write.ops import context_write

__all__ = ["context_write"]
