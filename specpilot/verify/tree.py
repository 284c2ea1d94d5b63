"""Verification of a draft tree: a walk from the root by the target's own choices.

At every node the target chooses the next token just as it would without a draft: greedily, or by one draw from its law
after that node. If a child of the node carries the token the walk goes on there; if not, the step ends with it as the
bonus. A draft therefore decides how many tokens a step gives, and never which: greedy tokens are the target's argmax,
and sampled ones are drawn from its law, whatever the tree. This holds for a tree that does not depend on the draws that
verify it; it is rejection sampling (https://arxiv.org/abs/2211.17192) with a proposal that is certain of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specpilot.draft.tree import DraftTree

__all__ = ["TreeWalk", "walk_tree"]


@dataclass(frozen=True)
class TreeWalk:
    """What a verify step commits.

    Attributes
    ----------
    rows
        Nodes kept, a path: the root first, then the accepted nodes.
    token_ids
        Tokens emitted, as many: those of the accepted nodes, then the bonus.
    """

    rows: list[int]
    token_ids: list[int]

    @property
    def num_correct_drafts(self) -> int:
        return len(self.rows) - 1


def walk_tree(tree: DraftTree, choose: Callable[[int], int]) -> TreeWalk:
    """Walk until the target leaves the tree.

    Parameters
    ----------
    choose
        Gives the target's token after a node. Called once for every node kept, in their order, and for no other: what
        it returns has been said when it is called again.
    """
    rows, token_ids = [0], [choose(0)]
    while (child := tree.children[rows[-1]].get(token_ids[-1])) is not None:
        rows.append(child)
        token_ids.append(choose(child))
    return TreeWalk(rows, token_ids)
