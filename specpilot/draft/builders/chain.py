"""The chain as a tree: from every node on to its best child."""

from __future__ import annotations

from specpilot.draft.builders.base import arrays_of, refuse_flaw
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot_kernels.draft_tree import FlawError, best_nodes

__all__ = ["ChainBuilder"]


class ChainBuilder:
    """A :class:`specpilot.draft.builders.TreeBuilder` whose nodes have one child at most.

    The path of :meth:`specpilot.draft.Lattice.greedy_chain`, up to ``num_nodes`` or to where nothing is known. Among
    children whose paths have equal log-probability the lowest token id is taken.
    """

    name = "chain"

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        ids, edges = arrays_of(lattice)
        try:
            (tree,) = best_nodes([ids], [edges], [lattice.are_logprobs], [root_id], num_nodes, max_children=1)
        except FlawError as error:
            refuse_flaw(error)
        return DraftTree(*tree)
