"""From a drafter's logits to the edges of its lattice: best candidates, pair scores, greedy chain."""

from specpilot_kernels.draft_candidates.ops import greedy_chain, pair_scores, top_candidates

__all__ = ["greedy_chain", "pair_scores", "top_candidates"]
