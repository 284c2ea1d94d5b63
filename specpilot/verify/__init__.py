"""Verification: which drafted tokens the target commits."""

from specpilot.verify.chain import (
    VerifyResult,
    acceptance_probs,
    bonus_law,
    draw_token,
    verify_greedy,
    verify_sampled,
)
from specpilot.verify.tree import TreeWalk, walk_tree

__all__ = [
    "TreeWalk",
    "VerifyResult",
    "acceptance_probs",
    "bonus_law",
    "draw_token",
    "verify_greedy",
    "verify_sampled",
    "walk_tree",
]
