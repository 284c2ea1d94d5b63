"""Does verifying trees keep the law? Answers by verify steps over any trees, exactly and by drawing.

The setting, the law without drafts and the distances are those of ``law_bench``. The chooser runs for real: its walk is
taken once for every outcome its draws can have, so what it draws from is what is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from specpilot.draft import DraftTree
from specpilot.sampling import TokenChooser
from tests.oracles.law_bench import Law, Setting, Tokens

TreeOf = Callable[[Tokens], DraftTree]
Steps = tuple[tuple[Tensor, DraftTree, Tokens], ...]


def random_tree(seed: int, num_nodes: int, vocab_size: int, max_depth: int = 99) -> DraftTree:
    """Any tree of up to ``num_nodes`` nodes: parents and tokens are drawn, twins are left out."""
    generator = np.random.default_rng(seed)
    tokens, parents, depths = [int(generator.integers(vocab_size))], [-1], [0]
    taken = set()
    for _ in range(num_nodes - 1):
        parent, token = int(generator.integers(len(tokens))), int(generator.integers(vocab_size))
        if (parent, token) in taken or depths[parent] == max_depth:
            continue
        taken.add((parent, token))
        tokens.append(token)
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return DraftTree(np.array(tokens), np.array(parents), np.zeros(len(tokens), np.float32))


def tree_rows(setting: Setting, said: Tokens, tree: DraftTree) -> Tensor:
    """(N, V) float64: the target's row after every node."""
    paths = [tuple(tree.token_ids[tree.path(node)[1:]].tolist()) for node in range(tree.num_nodes)]
    return torch.stack([setting.logits(said + path) for path in paths])


def emitted_tree_law(setting: Setting, new: Callable[[], TokenChooser], tree_of: TreeOf) -> Law:
    """Law of the answer by verify steps over ``tree_of(said)``: every outcome of every draw."""
    law: Law = defaultdict(float)

    def chooser_after(steps: Steps) -> TokenChooser:
        chooser = new()
        for rows, tree, tokens in steps:
            _walk(chooser, rows, tree, tokens)
        return chooser

    def visit(steps: Steps, said: Tokens, weight: float) -> None:
        if setting.is_over(said):
            law[said[: setting.num_tokens]] += weight  # a tree may reach past the tokens compared
            return
        tree = tree_of(said)
        rows = tree_rows(setting, said, tree)
        scripts: list[Tokens] = [()]
        while scripts:
            drawn, emitted, probability, others = _walk(chooser_after(steps), rows, tree, scripts.pop())
            scripts += others
            if probability > 0.0:
                visit((*steps, (rows, tree, drawn)), said + setting.cut(emitted), weight * probability)

    visit((), (), 1.0)
    return law


def _walk(
    chooser: TokenChooser, rows: Tensor, tree: DraftTree, script: Tokens
) -> tuple[Tokens, Tokens, float, list[Tokens]]:
    """Take the walk whose draws begin as scripted and go on with the first token possible.

    Returns the tokens drawn, those emitted, the probability of the draws, and the scripts of all others beyond the
    given one.
    """
    drawn: list[int] = []
    others: list[Tokens] = []
    probability = 1.0

    def draw(law: Tensor) -> int:
        nonlocal probability
        if len(drawn) < len(script):
            token = script[len(drawn)]
        else:
            token, *rest = law.nonzero().flatten().tolist()
            others.extend((*drawn, other) for other in rest)
        probability *= float(law[token])
        drawn.append(token)
        return token

    chooser.draw = draw  # type: ignore[method-assign]
    emitted = tuple(chooser.choose_path(rows, tree).token_ids)
    return tuple(drawn), emitted, probability, others


def drawn_tree_counts(
    setting: Setting, new: Callable[[], TokenChooser], tree_of: TreeOf, law: Law, num_answers: int, seed: int
) -> tuple[Tensor, Tensor]:
    """(counts, law) over the outcomes of answers that are really drawn; see ``law_bench.drawn_counts``."""
    generator = torch.Generator().manual_seed(seed)
    cells = {answer: index for index, answer in enumerate(law)}
    counts = torch.zeros(len(cells) + 1)
    for _ in range(num_answers):
        chooser, said = new(), ()
        chooser.generator = generator
        while not setting.is_over(said):
            tree = tree_of(said)
            said += setting.cut(tuple(chooser.choose_path(tree_rows(setting, said, tree), tree).token_ids))
        counts[cells.get(said[: setting.num_tokens], len(cells))] += 1
    return counts, torch.tensor([*law.values(), 0.0], dtype=torch.float64)
