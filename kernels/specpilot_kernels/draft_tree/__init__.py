"""Draft trees from lattices: the most likely nodes of one or several lattices, a beam, and what a tree must keep to."""

from specpilot_kernels.draft_tree.ops import FlawError, beam_tree, best_nodes, check_tree

__all__ = ["FlawError", "beam_tree", "best_nodes", "check_tree"]
