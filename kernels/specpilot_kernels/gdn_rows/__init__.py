"""Gated DeltaNet on rows of several sequences: everything between the two projections, in one call."""

from specpilot_kernels.gdn_rows.memory import GdnForm, GdnMemory, GdnPart, GdnSegments, GdnShape
from specpilot_kernels.gdn_rows.ops import GdnWeights, gdn_commit, gdn_rows

__all__ = [
    "GdnForm",
    "GdnMemory",
    "GdnPart",
    "GdnSegments",
    "GdnShape",
    "GdnWeights",
    "gdn_commit",
    "gdn_rows",
]
