"""DDTree: the best-first tree of the positions' marginals (https://arxiv.org/abs/2604.12989).

DDTree takes a block drafter whose positions have a law each, independent of what stands before, and scores a path by
the product of its tokens' probabilities under these laws. A lattice states what follows what; its marginals are the
laws of the tokens when the whole path is drawn from it:

    m_0(b) = p_0(b | root),   m_t(b) = sum over a of m_{t-1}(a) p_t(b | a)

Of the choices there are this is the one that depends on the lattice alone (a drafter's unconditioned logits are not in
it), and for a lattice without edges, all rows of a depth equal, it is the row itself: then this builder is DDTree as
published, and the best-first tree. A candidate after which nothing is known passes nothing on, and the sum runs over
the known ones, divided by their mass; the tree does not go on below such a candidate either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.builders.base import arrays_of, refuse_flaw
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot_kernels.draft_tree import FlawError, best_nodes

__all__ = ["DDTreeBuilder", "marginals"]


class DDTreeBuilder:
    """A :class:`specpilot.draft.builders.TreeBuilder` on marginals.

    ``logprobs`` of its trees are sums of log marginals: what the nodes are ranked by.
    """

    name = "ddtree"

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        ids, edges = arrays_of(lattice)
        try:
            best_nodes([ids], [edges], [lattice.are_logprobs], [root_id], 1)  # refuses scores that are none
            is_known = edges.max(-1, keepdims=True, initial=-np.inf) > -np.inf
            with np.errstate(divide="ignore"):
                laws = np.log(np.minimum(marginals(lattice), 1.0)).astype(np.float32)
            rows = np.where(is_known, laws[:, None, :], np.float32(-np.inf))
            (tree,) = best_nodes([ids], [rows], [True], [root_id], num_nodes)
        except FlawError as error:
            refuse_flaw(error)
        return DraftTree(*tree)


def marginals(lattice: Lattice) -> NDArray[np.float64]:
    """Probability of each candidate (D, K) when paths are drawn from the lattice; see the module."""
    _, edges = arrays_of(lattice)
    scores = edges.astype(np.float64)
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    is_known = highest > -np.inf
    weights = np.exp(scores - np.where(is_known, 0.0 if lattice.are_logprobs else highest, 0.0))
    if not lattice.are_logprobs:
        weights /= np.where(is_known, weights.sum(-1, keepdims=True), 1.0)
    laws = np.zeros(edges.shape[:2])
    for depth, rows in enumerate(weights):
        if depth == 0:
            laws[0] = rows[0]
            continue
        before = laws[depth - 1] * is_known[depth, :, 0]
        mass = before.sum()
        if mass > 0.0:
            laws[depth] = (before / mass) @ rows
    return laws
