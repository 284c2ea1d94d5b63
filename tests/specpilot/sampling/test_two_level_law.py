"""Two-level verification keeps the law of sampled answers: enumerated on six tokens, with every option.

The trees are those of cycles: a first tree, a walk over it by rows of a target that is not quite the right one, its
chain below the root and a second tree below that. The choosers run for real.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot.draft import DraftTree
from specpilot.engines.base import SamplingParams
from specpilot.refengine.two_level import join_trees
from specpilot.sampling import TokenChooser, new_chooser
from specpilot.verify import TreeWalk
from tests.oracles.law_bench import Setting, Tokens, total_variation
from tests.oracles.statistics import chi_square_p_value
from tests.oracles.tree_law import drawn_tree_counts, emitted_tree_law, random_tree, tree_rows
from tests.specpilot.sampling.test_lossless import (
    BEGUN,
    OPTIONS,
    PROMPT,
    begun,
    grammars,
    params_of,
    reference,
    setting_of,
)

NUM_NODES = 7


def number_of(said: Tokens) -> int:
    return sum((token + 1) * 7**place for place, token in enumerate(said))


def nearly(setting: Setting, rows: Tensor, said: Tokens) -> Tensor:
    """What a low-precision copy makes of the target's rows."""
    noise = torch.Generator().manual_seed(number_of(said) + setting.seed)
    return rows + 0.7 * torch.randn(rows.shape, generator=noise, dtype=rows.dtype)


def cycle_tree(params: SamplingParams, setting: Setting, said: Tokens) -> DraftTree:
    """The rows that the exact pass of a cycle verifies."""
    chooser = new_chooser(params, PROMPT, vocab_size=6, grammars=grammars())
    chooser.advance(BEGUN + said)
    first = random_tree(number_of(said), 6, 6, max_depth=2)
    walk = chooser.guess_path(nearly(setting, tree_rows(setting, said, first), said), first)
    chain = walk.token_ids[: NUM_NODES - 1]
    second = random_tree(number_of(said) + 1, 6, 6, max_depth=2)
    root = np.array([chain[-1], *second.token_ids[1:]])
    return join_trees(
        int(first.token_ids[0]), chain, DraftTree(root, second.parents, second.logprobs), NUM_NODES
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_law_of_cycles_is_exactly_the_law_without(name: str) -> None:
    params = params_of(name)
    setting = setting_of(params)
    law = emitted_tree_law(setting, begun(params), partial(cycle_tree, params, setting))
    assert total_variation(law, reference(setting, params)) < 1e-12


class TrustsTheCopy(TokenChooser):
    """The chain of the Q pass is emitted as if the exact pass had said it."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        if tree.num_nodes == 1:
            return super().choose_path(logits, tree)
        first = int(tree.token_ids[1])
        self.advance((first,))
        return TreeWalk([0, 1], [first, self.choose_next(logits[1:2])])


class GuessesByDrawing(TokenChooser):
    """Draws in the Q pass with the request's own generator, and again the same in the exact one."""

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        law = self.law(self.process(logits[:1], ()))[0]
        likely = int(law.argmax())
        token = self.choose_next(logits[:1])
        # A second try when the first draw was not what the copy had said: more is accepted, and the law is another.
        if token != likely and int(tree.token_ids[min(1, tree.num_nodes - 1)]) == likely:
            token = self.draw(law)
        return TreeWalk([0], [token])


@pytest.mark.parametrize("kind", [TrustsTheCopy, GuessesByDrawing])
def test_control_faulty_cycles_change_the_law(kind: type[TokenChooser]) -> None:
    params = params_of("plain")
    setting = setting_of(params)
    law = emitted_tree_law(setting, begun(params, kind), partial(cycle_tree, params, setting))
    assert total_variation(law, reference(setting, params)) > 0.01


def test_drawn_answers_have_the_law() -> None:
    params = params_of("truncations")
    setting = setting_of(params)
    law = reference(setting, params)
    counts = drawn_tree_counts(
        setting, begun(params), partial(cycle_tree, params, setting), law, 3000, seed=1
    )
    assert chi_square_p_value(*counts) > 1e-4
    wrong = drawn_tree_counts(
        setting, begun(params, TrustsTheCopy), partial(cycle_tree, params, setting), law, 3000, seed=1
    )
    assert chi_square_p_value(*wrong) < 1e-8


@pytest.mark.parametrize("name", ["plain", "repetition", "grammar"])
def test_a_guess_remembers_and_draws_nothing(name: str) -> None:
    params = params_of(name)
    setting = setting_of(params)
    chooser, other = begun(params)(), begun(params)()
    chooser.generator = torch.Generator().manual_seed(1)
    tree = random_tree(5, 6, 6, max_depth=3)
    rows = tree_rows(setting, (), tree)
    before = chooser.generator.get_state()
    walk = chooser.guess_path(rows, tree)
    assert torch.equal(chooser.generator.get_state(), before)
    assert chooser.guess_path(rows, tree) == walk
    assert torch.equal(chooser.process(rows[:1], ()), other.process(rows[:1], ()))


def test_a_guess_counts_the_tokens_of_its_path() -> None:
    """With penalties each row is judged as if the path had been said."""
    params = SamplingParams(presence_penalty=2.0, frequency_penalty=2.0)
    chooser = new_chooser(params, PROMPT, vocab_size=6, grammars=grammars())
    tree = DraftTree.chain(0, [3, 4, 5])
    logits = torch.zeros(4, 6)
    logits[0, 3], logits[1, 3], logits[1, 4], logits[2, 4], logits[2, 5], logits[3, 0] = 9, 6, 5, 6, 5, 1
    assert chooser.guess_path(logits, tree) == TreeWalk([0, 1, 2, 3], [3, 4, 5, 0])
    free = new_chooser(SamplingParams(), PROMPT, vocab_size=6, grammars=grammars())
    assert free.guess_path(logits, tree) == TreeWalk([0, 1], [3, 3])
    biased = new_chooser(SamplingParams(logit_bias={1: 50.0}), PROMPT, vocab_size=6, grammars=grammars())
    assert biased.guess_path(logits, tree) == TreeWalk([0], [1])
