"""Drafters: what proposes tokens, and the lattice its proposals are read from."""

from specpilot.draft.attach import attach_chain, attach_subtree
from specpilot.draft.drafter import BorrowedTarget, Draft, Drafter, DrafterState, TargetDimensions
from specpilot.draft.lattice import Lattice
from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.draft.step_cost import StepCost
from specpilot.draft.suffix import SuffixDrafter
from specpilot.draft.tree import DraftTree

__all__ = [
    "BorrowedTarget",
    "Draft",
    "DraftTree",
    "Drafter",
    "DrafterState",
    "Lattice",
    "ProposeRequest",
    "StepCost",
    "SuffixDrafter",
    "TargetDimensions",
    "attach_chain",
    "attach_subtree",
    "propose_all",
]
