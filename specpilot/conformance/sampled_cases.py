"""Trees keep the target's law: every outcome of every draw is enumerated and compared with plain sampling."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specpilot.conformance.case import Case, Deviation
from specpilot.draft.tree import DraftTree
from specpilot.engines.base import SamplingParams
from specpilot.sampling import TokenChooser
from specpilot.verify import TreeWalk, walk_tree

__all__ = ["cases"]

_Tokens = tuple[int, ...]
_Kind = type[TokenChooser]

_VOCABULARY = 5
_NUM_TOKENS = 3
_MOST = 1e-12
"""Total variation that rounding may leave."""

_OPTIONS = {
    "temperature 1": SamplingParams(temperature=1.0),
    "temperature 0.4": SamplingParams(temperature=0.4),
    "top-k 3": SamplingParams(temperature=1.3, top_k=3),
    "top-p 0.7": SamplingParams(temperature=1.0, top_p=0.7),
}


def cases() -> Iterator[Case[Any]]:
    yield Case("sampled trees", "first draft emitted unverified", _check, TokenChooser, _FirstUnverified)
    yield Case("sampled trees", "row of a sibling", _check, TokenChooser, _RowOfSibling)
    yield Case("sampled trees", "bonus drawn after the parent", _check, TokenChooser, _BonusOfParent)


def _check(kind: _Kind) -> int:
    count = 0
    for name, params in _OPTIONS.items():
        for seed in range(3):
            plain, emitted = _plain_law(params), _emitted_law(kind, params, seed)
            distance = (
                sum(abs(plain[answer] - emitted[answer]) for answer in plain.keys() | emitted.keys()) / 2
            )
            if distance > _MOST:
                raise Deviation(
                    f"{name}, trees {seed}: got a law at total variation {distance:.3g}, expected 0"
                )
            count += len(plain)
    return count


def _logits(said: _Tokens) -> Tensor:
    """A target that looks at all that was said; float64 (V,)."""
    number = 1
    for token in said:
        number = number * (_VOCABULARY + 1) + token + 1
    generator = torch.Generator().manual_seed(number)
    return torch.randn(_VOCABULARY, generator=generator, dtype=torch.float64) * 1.5


def _token_law(said: _Tokens, params: SamplingParams) -> list[float]:
    """By the definition of temperature, top-k and top-p, on Python's numbers."""
    logits = (_logits(said) / params.temperature).tolist()
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    order = sorted(range(_VOCABULARY), key=lambda token: (-weights[token], token))
    kept = order[: params.top_k or _VOCABULARY]
    total = math.fsum(weights[token] for token in kept)
    nucleus, mass = set[int](), 0.0
    for token in kept:
        if mass < params.top_p * total:
            nucleus.add(token)
            mass += weights[token]
    whole = math.fsum(weights[token] for token in nucleus)
    return [weights[token] / whole if token in nucleus else 0.0 for token in range(_VOCABULARY)]


def _plain_law(params: SamplingParams) -> dict[_Tokens, float]:
    law: dict[_Tokens, float] = {(): 1.0}
    for _ in range(_NUM_TOKENS):
        law = {
            (*said, token): weight * p
            for said, weight in law.items()
            for token, p in enumerate(_token_law(said, params))
            if p > 0.0
        }
    return defaultdict(float, law)


def _tree_after(said: _Tokens, seed: int) -> DraftTree:
    """Any tree of up to seven nodes and two drafts deep; another one after every beginning."""
    generator = np.random.default_rng([seed, len(said), *said])
    tokens, parents, depths = [0], [-1], [0]
    for _ in range(6):
        parent, token = int(generator.integers(len(tokens))), int(generator.integers(_VOCABULARY))
        if depths[parent] < 2 and (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
    return DraftTree(np.array(tokens), np.array(parents), np.zeros(len(tokens), np.float32))


def _emitted_law(kind: _Kind, params: SamplingParams, seed: int) -> dict[_Tokens, float]:
    """Law of the first tokens of answers made by verify steps."""
    law: dict[_Tokens, float] = defaultdict(float)

    def visit(said: _Tokens, weight: float) -> None:
        if len(said) >= _NUM_TOKENS:
            law[said[:_NUM_TOKENS]] += weight
            return
        tree = _tree_after(said, seed)
        paths = [tuple(tree.token_ids[tree.path(node)[1:]].tolist()) for node in range(tree.num_nodes)]
        rows = torch.stack([_logits(said + path) for path in paths])
        scripts: list[_Tokens] = [()]
        while scripts:
            emitted, probability, others = _scripted(kind, params, rows, tree, scripts.pop())
            scripts += others
            if probability > 0.0:
                visit(said + emitted, weight * probability)

    visit((), 1.0)
    return law


def _scripted(
    kind: _Kind, params: SamplingParams, rows: Tensor, tree: DraftTree, script: _Tokens
) -> tuple[_Tokens, float, list[_Tokens]]:
    """One step whose draws begin as scripted: tokens, probability of the draws, scripts of all other outcomes."""
    drawn: list[int] = []
    others: list[_Tokens] = []
    chances: list[float] = []

    class Scripted(kind):  # type: ignore[misc, valid-type]
        def draw(self, law: Tensor) -> int:
            if len(drawn) < len(script):
                token = script[len(drawn)]
            else:
                token, *rest = law.nonzero().flatten().tolist()
                others.extend((*drawn, other) for other in rest)
            chances.append(float(law[token]))
            drawn.append(token)
            return token

    chooser = Scripted(params, generator=torch.Generator().manual_seed(0))
    emitted = tuple(chooser.choose_path(rows, tree).token_ids)
    return emitted, math.prod(chances), others


class _FirstUnverified(TokenChooser):
    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        if tree.num_nodes == 1:
            return super().choose_path(logits, tree)

        def choose(node: int) -> int:
            token = self.choose_next(logits[node : node + 1])
            return token if node else int(tree.token_ids[1])

        return walk_tree(tree, choose)


class _RowOfSibling(TokenChooser):
    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        parents = tree.parents.tolist()
        rows = list(range(tree.num_nodes))
        for node in rows[1:]:
            siblings = [other for other in range(1, tree.num_nodes) if parents[other] == parents[node]]
            rows[node] = siblings[(siblings.index(node) + 1) % len(siblings)]
        return super().choose_path(logits[rows], tree)


class _BonusOfParent(TokenChooser):
    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        return super().choose_path(logits[[0, *tree.parents.tolist()[1:]]], tree)
