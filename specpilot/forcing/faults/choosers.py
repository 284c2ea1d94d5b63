"""Faults in what a verify step accepts: choosers that emit tokens which the exact pass did not choose."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from specpilot.draft.drafter import Draft
from specpilot.draft.tree import DraftTree
from specpilot.engines.base import GenerateRequest
from specpilot.errors import Unsupported
from specpilot.sampling import TokenChooser
from specpilot.verify.tree import TreeWalk, walk_tree

__all__ = ["OneTooMany", "UnverifiedChain"]


def _generator(request: GenerateRequest) -> torch.Generator:
    if not request.sampling.is_greedy or request.sampling.logit_bias or request.sampling.json_schema:
        raise Unsupported("faults of a verify step are made for plain greedy requests")
    return torch.Generator().manual_seed(0)


class OneTooMany(TokenChooser):
    """Accepts one draft more than was verified, in a share of the steps in which one is left.

    1 is the classic error of an index by one; a small share is a race that lets a draft through now and then.
    """

    def __init__(self, request: GenerateRequest, share: float) -> None:
        super().__init__(request.sampling, generator=_generator(request))
        self._share, self._random = share, Random(hash(tuple(request.prompt_ids)))

    def choose(self, logits: Tensor, draft: Draft | None = None) -> list[int]:
        tokens = super().choose(logits, draft)
        if draft is None or len(tokens) > len(draft.token_ids) or not self._is_hit():
            return tokens
        wrong = int(draft.token_ids[len(tokens) - 1])
        return [*tokens[:-1], wrong, self.choose_next(logits[len(tokens) : len(tokens) + 1])]

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        walk = super().choose_path(logits, tree)
        children = tree.children[walk.rows[-1]]
        if not children or not self._is_hit():
            return walk
        wrong, row = next(iter(children.items()))
        bonus = self.choose_next(logits[row : row + 1])
        return TreeWalk([*walk.rows, row], [*walk.token_ids[:-1], wrong, bonus])

    def _is_hit(self) -> bool:
        return self._random.random() < self._share


class UnverifiedChain(TokenChooser):
    """Emits the chain of the Q pass as it is; the exact pass chooses only what follows it."""

    def __init__(self, request: GenerateRequest) -> None:
        super().__init__(request.sampling, generator=_generator(request))
        self._chain: Sequence[int] = ()

    def guess_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        walk = super().guess_path(logits, tree)
        self._chain = walk.token_ids
        return walk

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        left = list(self._chain)
        self._chain = ()

        def choose(node: int) -> int:
            if left and left[0] in tree.children[node]:
                return left.pop(0)
            left.clear()
            return self.choose_next(logits[node : node + 1])

        return walk_tree(tree, choose)
