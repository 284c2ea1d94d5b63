"""DDTree: the best-first tree of the positions' marginals (https://arxiv.org/abs/2604.12989).

DDTree takes a block drafter whose positions have a law each, independent of what stands before, and scores a path by
the product of its tokens' probabilities under these laws. A lattice states what follows what; its marginals are the
laws of the tokens when the whole path is drawn from it:

    m_0(b) = p_0(b | root),   m_t(b) = sum over a of m_{t-1}(a) p_t(b | a)

Of the choices there are this is the one that depends on the lattice alone (a drafter's unconditioned logits are not in
it), and for a lattice without edges, all rows of a depth equal, it is the row itself: then this builder is DDTree as
published, and the best-first tree. A candidate after which nothing is known passes nothing on, and the sum runs over
the known ones, divided by their mass; the tree does not go on below such a candidate either, nor along an edge that the
lattice rules out. Columns of one depth with the same token, which a drafter that grows a tree has, are one token here.
"""

from __future__ import annotations

from specpilot.draft.builders.base import arrays_of, refuse_flaw
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot_kernels.draft_tree import FlawError, best_nodes, marginal_edges

__all__ = ["DDTreeBuilder"]


class DDTreeBuilder:
    """A :class:`specpilot.draft.builders.TreeBuilder` on marginals.

    ``logprobs`` of its trees are sums of log marginals: what the nodes are ranked by.
    """

    name = "ddtree"

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        ids, edges = arrays_of(lattice)
        try:
            _, rows = marginal_edges(ids, edges, are_logprobs=lattice.are_logprobs)
        except FlawError as error:
            refuse_flaw(error)
        (tree,) = best_nodes([ids], [rows], [True], [root_id], num_nodes)
        return DraftTree(*tree)
