"""Stops any tree where its next nodes would cost more than they are expected to bring."""

from __future__ import annotations

from specpilot.draft.builders.base import TreeBuilder
from specpilot.draft.lattice import Lattice
from specpilot.draft.step_cost import StepCost
from specpilot.draft.tree import DraftTree

__all__ = ["CostAwareBuilder"]


class CostAwareBuilder:
    """A :class:`specpilot.draft.builders.TreeBuilder` that cuts another one's trees by a measured cost.

    The first nodes of a tree are a tree; :meth:`specpilot.draft.StepCost.best_num_nodes` says how many are kept. That
    is right as far as the drafter's probabilities are.
    """

    def __init__(self, builder: TreeBuilder, cost: StepCost) -> None:
        self.name = builder.name
        self._builder, self._cost = builder, cost

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        return self.cut(self._builder.build(lattice, root_id, num_nodes))

    def cut(self, tree: DraftTree) -> DraftTree:
        """The beginning of a tree that is worth its time."""
        return tree.prefix(self._cost.best_num_nodes(tree.logprobs))
