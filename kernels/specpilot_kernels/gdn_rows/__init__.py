"""Gated DeltaNet on a few rows of one sequence: everything between the two projections, in one call."""

from specpilot_kernels.gdn_rows.ops import GdnWeights, Written, gdn_replay_, gdn_rows

__all__ = ["GdnWeights", "Written", "gdn_replay_", "gdn_rows"]
