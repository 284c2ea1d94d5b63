"""Verifying trees keeps the law of the answer, with every option: enumerated on six tokens, chi-square on more.

A fixed seed even gives the very tokens of plain decoding. Every test has controls with a fault that must fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specpilot.draft import DraftTree
from specpilot.engines.base import SamplingParams
from specpilot.errors import EngineError
from specpilot.sampling import TokenChooser, new_chooser
from specpilot.verify import TreeWalk, walk_tree
from tests.oracles.array_grammar import END
from tests.oracles.law_bench import Setting, Tokens, plain_law, total_variation
from tests.oracles.sampling_reference import reference_law, reference_logits
from tests.oracles.statistics import chi_square_p_value
from tests.oracles.tree_law import drawn_tree_counts, emitted_tree_law, random_tree, tree_rows
from tests.specpilot.sampling.test_lossless import (
    LARGER,
    LARGER_OPTIONS,
    OPTIONS,
    PROMPT,
    begun,
    grammars,
    params_of,
    reference,
    setting_of,
)

Chooser = Callable[..., TokenChooser]


def any_tree(said: Tokens) -> DraftTree:
    """Six nodes or fewer, another tree after every beginning."""
    return random_tree(sum((token + 1) * 7**place for place, token in enumerate(said)), 9, 6, max_depth=2)


def bushy_tree(said: Tokens) -> DraftTree:
    """Three children of the root, and three of the first of them."""
    return DraftTree(
        np.array([0, 1, 2, 3, 4, 2, 0]), np.array([-1, 0, 0, 0, 1, 1, 1]), np.zeros(7, np.float32)
    )


def distance(
    params: SamplingParams,
    kind: Chooser | None = None,
    tree_of: Callable[[Tokens], DraftTree] = any_tree,
    seed: int = 0,
) -> float:
    setting = setting_of(params, seed)
    return total_variation(
        emitted_tree_law(setting, begun(params, kind), tree_of), reference(setting, params)
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_law_with_trees_is_exactly_the_law_without(name: str) -> None:
    assert distance(params_of(name)) < 1e-12


@pytest.mark.parametrize("tree_of", [bushy_tree, lambda said: DraftTree.chain(0, [1, 4])])
def test_law_is_kept_whatever_the_tree(tree_of: Callable[[Tokens], DraftTree]) -> None:
    assert distance(params_of("penalties"), tree_of=tree_of) < 1e-12


class RowOfSibling(TokenChooser):
    """Every node is judged by the row of another child of its parent, where it has one."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        parents = tree.parents.tolist()
        rows = list(range(tree.num_nodes))
        for node in rows[1:]:
            siblings = [other for other in range(1, tree.num_nodes) if parents[other] == parents[node]]
            rows[node] = siblings[(siblings.index(node) + 1) % len(siblings)]
        return super().choose_path(logits[rows], tree)


class LawNotNormalised(TokenChooser):
    def law(self, rows: Tensor) -> Tensor:
        return super().law(rows) * 0.9


class FirstDraftUnverified(TokenChooser):
    """The first child of the root is emitted whatever the target draws."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        if tree.num_nodes == 1:
            return super().choose_path(logits, tree)

        def choose(node: int) -> int:
            token = self.choose_next(logits[node : node + 1])
            return token if node else int(tree.token_ids[1])

        return walk_tree(tree, choose)


class BonusOfParent(TokenChooser):
    """Off by one: the token after the last accepted draft is drawn after the one before it."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        rows = [0, *tree.parents.tolist()[1:]]
        return super().choose_path(logits[rows], tree)


class NothingSaidOnTheWay(TokenChooser):
    """Penalties see a path's tokens only after the step."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        row_of = lambda node: self.process(logits[node : node + 1], ())  # noqa: E731
        walk = walk_tree(tree, lambda node: self.draw(self.law(row_of(node))[0]))
        self.advance(walk.token_ids)
        return walk


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plain", RowOfSibling),
        ("plain", LawNotNormalised),
        ("plain", FirstDraftUnverified),
        ("plain", BonusOfParent),
        ("frequency", NothingSaidOnTheWay),
        ("repetition", NothingSaidOnTheWay),
    ],
)
def test_control_a_faulty_walk_changes_the_law(name: str, kind: Chooser) -> None:
    assert distance(params_of(name), kind, bushy_tree) > 0.001


def test_control_grammar_not_advanced_on_the_way_breaks() -> None:
    with pytest.raises(EngineError, match="grammar"):
        distance(params_of("grammar"), NothingSaidOnTheWay)


class TreeKnowsTheDraw(TokenChooser):
    """Fault: the tree holds what will be drawn, and only a token of the tree is emitted."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        def choose(node: int) -> int:
            children = tree.children[node]
            law = self.law(self.process(logits[node : node + 1], ()))[0]
            if children:
                inside = torch.zeros_like(law)
                inside[list(children)] = law[list(children)]
                law = inside / inside.sum()
            token = self.draw(law)
            self.advance((token,))
            return token

        return walk_tree(tree, choose)


def test_control_a_draw_confined_to_the_tree_changes_the_law() -> None:
    assert distance(params_of("plain"), TreeKnowsTheDraw, bushy_tree) > 0.1


def plain_tokens(setting: Setting, chooser: TokenChooser) -> Tokens:
    said: Tokens = ()
    while not setting.is_over(said):
        said += tuple(chooser.choose(setting.rows(said, ())))
    return said


@given(st.sampled_from(sorted(OPTIONS)), st.sampled_from([0.0, 1.0]), st.integers(0, 10_000))
def test_tokens_are_those_of_plain_decoding_with_the_same_seed(name: str, warmth: float, seed: int) -> None:
    drawn = params_of(name)
    params = replace(drawn, seed=seed, temperature=drawn.temperature * warmth)
    setting = Setting(seed, num_tokens=10, eos_ids=(END,) if params.json_schema else ())
    new = begun(params)
    plain, chooser = plain_tokens(setting, new()), new()
    said: Tokens = ()
    num_steps = 0
    while not setting.is_over(said):
        # A tree with the right path in it, and a random one in turn.
        ahead = list(plain[len(said) : len(said) + 3])
        tree = DraftTree.chain(0, ahead) if num_steps % 2 else random_tree(seed + len(said), 12, 6)
        said += setting.cut(tuple(chooser.choose_path(tree_rows(setting, said, tree), tree).token_ids))
        num_steps += 1
    assert said[: len(plain)] == plain
    assert num_steps < len(plain) or len(plain) < 3


def chi_square_on_larger(kind: Chooser | None = None) -> float:
    params = LARGER_OPTIONS
    setting = replace(LARGER, drawn=setting_of(params).drawn)

    def new() -> TokenChooser:
        chooser = new_chooser(params, PROMPT, vocab_size=200, grammars=grammars())
        if kind is not None:
            chooser.__class__ = kind  # type: ignore[assignment]
        return chooser

    def tree_of(said: Tokens) -> DraftTree:
        """What the target likes after ``said``: so some of it is accepted."""
        liked = setting.logits(said).topk(8).indices.numpy()
        return DraftTree(np.concatenate(([0], liked)), np.array([-1, *[0] * 8]), np.zeros(9, np.float32))

    def next_law(logits: Tensor, said: Tokens) -> Sequence[float]:
        return reference_law(reference_logits(logits.tolist(), params, prompt=PROMPT, said=said), params)

    law = plain_law(setting, next_law)
    return chi_square_p_value(*drawn_tree_counts(setting, new, tree_of, law, 2_500, seed=2024))


def test_drawn_answers_on_200_tokens_pass_chi_square() -> None:
    """2,500 answers of two tokens with every option but grammar, fixed seed, level 0.001."""
    assert chi_square_on_larger() > 0.001


@pytest.mark.parametrize("kind", [RowOfSibling, FirstDraftUnverified, NothingSaidOnTheWay])
def test_control_chi_square_rejects(kind: Chooser) -> None:
    assert chi_square_on_larger(kind) < 1e-6
