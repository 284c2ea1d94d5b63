"""Best-first trees: the nodes with the highest path log-probability, each edge scored given its parent.

    score(path) = sum over t of log p(x_t | x_{t-1}),  p = softmax over the candidates of depth t

(section 2.2 and 4.2 of SpecPilot, https://arxiv.org/abs/2611.02501). A child never beats its parent, so the N best
nodes are a tree, and the first n of them the best tree of n nodes. One heap finds them: take the best, put in its first
child and its next sibling. Order of nodes: path log-probability downwards, then depth, token id, and place of the
parent, so that equal scores give one tree on every machine whose ``exp`` and ``log`` agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from specpilot.draft.builders.base import arrays_of, refuse_flaw
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot_kernels.draft_tree import FlawError, best_nodes

__all__ = ["BestFirstBuilder", "share_nodes"]


class BestFirstBuilder:
    """A :class:`specpilot.draft.builders.TreeBuilder` with parent-conditioned edges."""

    name = "best_first"

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        return share_nodes([lattice], [root_id], num_nodes)[0]


def share_nodes(lattices: Sequence[Lattice], root_ids: Sequence[int], budget: int) -> list[DraftTree]:
    """Spend ``budget`` nodes on the most likely ones of several requests: one heap over all of them.

    Every request keeps its root, whose log-probability 0 no node beats. A request's share is the beginning of its own
    best-first tree. Nodes with equal log-probability go by depth, token id, place in ``lattices``, and place of the
    parent.

    Parameters
    ----------
    lattices
        One a live request; depths and widths may differ, and a lattice may have depth 0.
    root_ids
        Last committed token of each request.
    budget
        Nodes of all trees together, roots included, at least ``len(lattices)``.

    Raises
    ------
    ValueError
        Fewer nodes than requests, or not as many roots as lattices.
    DraftError
        As :meth:`TreeBuilder.build`; the message names the request by its place.
    """
    if not lattices:
        return []
    arrays = [arrays_of(lattice) for lattice in lattices]
    try:
        trees = best_nodes(
            [ids for ids, _ in arrays],
            [edges for _, edges in arrays],
            [lattice.are_logprobs for lattice in lattices],
            root_ids,
            budget,
        )
    except FlawError as error:
        refuse_flaw(error)
    return [DraftTree(*tree) for tree in trees]
