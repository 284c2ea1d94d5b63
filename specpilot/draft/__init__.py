"""Drafters: what proposes tokens, and the lattice its proposals are read from."""

from specpilot.draft.drafter import BorrowedTarget, Draft, Drafter, DrafterState, TargetDimensions
from specpilot.draft.lattice import Lattice
from specpilot.draft.suffix import SuffixDrafter

__all__ = [
    "BorrowedTarget",
    "Draft",
    "Drafter",
    "DrafterState",
    "Lattice",
    "SuffixDrafter",
    "TargetDimensions",
]
