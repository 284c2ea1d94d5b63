"""EAGLE-2 trees: a beam by depth, then the best of all that was grown (https://arxiv.org/abs/2406.16858).

*Expansion*: of every depth the ``top_k`` nodes with the highest path probability get their ``top_k`` best children.
*Reranking*: of all nodes so grown, ``1 + top_k + (D - 1) top_k ** 2`` at most, the N most likely are verified, shallow
ones first among equals. A node that the expansion left out cannot come back, which is what sets this apart from the
best-first tree; in exchange the work has the same shape in every step.
"""

from __future__ import annotations

from specpilot.draft.builders.base import arrays_of, refuse_flaw
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError
from specpilot_kernels.draft_tree import FlawError, beam_tree

__all__ = ["DEFAULT_TOP_K", "Eagle2Builder"]

DEFAULT_TOP_K = 4
"""As in SpecPilot's replay, section 6.4 (https://arxiv.org/abs/2611.02501)."""


class Eagle2Builder:
    """A :class:`specpilot.draft.builders.TreeBuilder`; ``top_k`` >= 1 nodes a depth and children a node."""

    name = "eagle2"

    def __init__(self, top_k: int = DEFAULT_TOP_K) -> None:
        if top_k < 1:
            raise ConfigError(f"top_k: got {top_k}, expected 1 or more")
        self.top_k = top_k

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        ids, edges = arrays_of(lattice)
        try:
            tree = beam_tree(ids, edges, root_id, num_nodes, self.top_k, are_logprobs=lattice.are_logprobs)
        except FlawError as error:
            refuse_flaw(error)
        return DraftTree(*tree)
