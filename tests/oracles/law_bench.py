"""Is speculation lossless? The law of an answer's first tokens, with drafts and without, exactly and by drawing.

Everything that chooses tokens runs for real: a chooser's options, acceptance, bonus. A *setting* is what stands around
it. Use: ``total_variation(emitted_law(setting, new), plain_law(setting, next_law))`` is 0 up to rounding, or
``chi_square_p_value(*drawn_counts(...))`` is above a stated level. Both must be far from it for a chooser with a fault.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from specpilot.draft import Draft, Lattice
from specpilot.verify import acceptance_probs, bonus_law

Tokens = tuple[int, ...]
Law = dict[Tokens, float]


class Chooser(Protocol):
    """The part of ``TokenChooser`` that is judged."""

    generator: torch.Generator

    def choose(self, logits: Tensor, draft: Draft | None = None) -> list[int]: ...

    def process(self, logits: Tensor, path: Sequence[int]) -> Tensor: ...

    def law(self, rows: Tensor) -> Tensor: ...

    def advance(self, token_ids: Sequence[int]) -> None: ...


def _draw_scores(scores: Tensor) -> Tensor:
    return torch.softmax(scores.double(), -1)


@dataclass(frozen=True)
class Setting:
    """A target whose logits depend on all that was said, and a drafter whose lattice does too.

    Attributes
    ----------
    num_tokens
        Length of the answers compared; an answer that ends sooner is its own outcome.
    depth
        Drafts of a step at most, ``width`` candidates each.
    is_informed
        Candidates are what the target likes after ``said``; otherwise they are any. Large vocabularies need this for
        drafts to be accepted at all.
    drawn, claimed
        From edge scores (K,) to the law drafts are drawn from, and to the law the verifier is told. They are equal,
        except in negative controls.
    """

    seed: int
    vocab_size: int = 6
    num_tokens: int = 3
    depth: int = 2
    width: int = 3
    spread: float = 1.5
    is_informed: bool = False
    eos_ids: Tokens = ()
    drawn: Callable[[Tensor], Tensor] = _draw_scores
    claimed: Callable[[Tensor], Tensor] | None = None

    def logits(self, said: Tokens) -> Tensor:
        """(V,) float64."""
        return _logits(self.seed, self.vocab_size, said) * self.spread

    def lattice(self, said: Tokens, depth: int) -> Lattice:
        noise = _noise(2 * self.seed + 1, self.vocab_size, said)
        ids = [torch.randperm(self.vocab_size, generator=noise)[: self.width] for _ in range(depth)]
        if self.is_informed:
            ids = [self.logits(said).topk(self.width).indices] * depth
        return Lattice(
            torch.stack(ids), torch.randn(depth, self.width, self.width, generator=noise) * self.spread
        )

    def rows(self, said: Tokens, path: Tokens) -> Tensor:
        """(len(path) + 1, V) float64: the target's rows of a verify step."""
        return torch.stack([self.logits(said + path[:count]) for count in range(len(path) + 1)])

    def depth_after(self, said: Tokens) -> int:
        return min(self.depth, self.num_tokens - len(said) - 1)

    def is_over(self, said: Tokens) -> bool:
        return len(said) >= self.num_tokens or (bool(said) and said[-1] in self.eos_ids)

    def cut(self, tokens: Tokens) -> Tokens:
        """Without what stands behind end-of-text."""
        ends = [place for place, token in enumerate(tokens) if token in self.eos_ids]
        return tokens[: ends[0] + 1] if ends else tokens


@lru_cache(10_000)
def _logits(seed: int, vocab_size: int, said: Tokens) -> Tensor:
    return torch.randn(vocab_size, generator=_noise(2 * seed, vocab_size, said), dtype=torch.float64)


def _noise(number: int, vocab_size: int, said: Tokens) -> torch.Generator:
    for token in said:
        number = number * (vocab_size + 1) + token + 1
    return torch.Generator().manual_seed(number)


def plain_law(setting: Setting, next_law: Callable[[Tensor, Tokens], Sequence[float]]) -> Law:
    """Law of the answer token by token; ``next_law(logits, said)`` is the reference of one token."""
    law: Law = defaultdict(float)

    def visit(said: Tokens, weight: float) -> None:
        if setting.is_over(said):
            law[said] += weight
            return
        for token, p in enumerate(next_law(setting.logits(said), said)):
            if p > 0.0:
                visit((*said, token), weight * p)

    visit((), 1.0)
    return law


def emitted_law(setting: Setting, new: Callable[[], Chooser]) -> Law:
    """Law of the answer by verify steps: every chain, place of the first rejection, bonus, and all that follows.

    ``new`` makes a chooser at the beginning of the answer. Every step's branches start from the choosers that the steps
    before have really been through, so a state that is left wrong shows.
    """
    law: Law = defaultdict(float)

    def chooser_after(steps: Sequence[tuple[Tensor, Tokens, Tokens]]) -> Chooser:
        chooser = new()
        for rows, path, tokens in steps:
            chooser.process(rows, path)
            chooser.advance(tokens)
        return chooser

    def visit(steps: tuple[tuple[Tensor, Tokens, Tokens], ...], said: Tokens, weight: float) -> None:
        if setting.is_over(said):
            law[said] += weight
            return
        lattice = setting.lattice(said, setting.depth_after(said)) if setting.depth_after(said) else None
        for chain, q_rows, probability in _chains(setting, lattice):
            rows = setting.rows(said, chain)
            chooser = chooser_after(steps)
            p_rows = chooser.law(chooser.process(rows, chain))
            ids = lattice.candidate_ids if lattice else torch.empty(0, 1, dtype=torch.int64)
            accept = acceptance_probs(torch.tensor(chain, dtype=torch.int64), ids, q_rows, p_rows).tolist()
            reached = weight * probability
            for count in range(len(chain) + 1):
                stops = reached * (1.0 - accept[count]) if count < len(chain) else reached
                reached -= stops
                bonus = bonus_law(count, ids, q_rows, p_rows).tolist() if stops > 0.0 else []
                for token, p in enumerate(bonus):
                    if p > 0.0:
                        tokens = (*chain[:count], token)
                        step = (rows, chain, tokens)
                        visit((*steps, step), said + setting.cut(tokens), stops * p)

    visit((), (), 1.0)
    return law


def _chains(setting: Setting, lattice: Lattice | None) -> list[tuple[Tokens, Tensor, float]]:
    """Every chain with the rows the verifier is told and the probability with which it is drawn."""
    if lattice is None:
        return [((), torch.empty(0, 1, dtype=torch.float64), 1.0)]
    claimed, chains = setting.claimed or setting.drawn, []
    for picks in itertools.product(range(lattice.width), repeat=lattice.depth):
        scores = [lattice.edge_scores[t, parent] for t, parent in enumerate((0, *picks[:-1]))]
        drawn = [float(setting.drawn(row)[pick]) for row, pick in zip(scores, picks, strict=True)]
        told = torch.stack([claimed(row) for row in scores])
        probability = float(torch.tensor(drawn, dtype=torch.float64).prod())
        chain = tuple(int(lattice.candidate_ids[t, pick]) for t, pick in enumerate(picks))
        if probability > 0.0:
            chains.append((chain, told, probability))
    return chains


def drawn_counts(
    setting: Setting, new: Callable[[], Chooser], law: Law, num_answers: int, seed: int
) -> tuple[Tensor, Tensor]:
    """(counts, law) over the outcomes: answers decoded by ``choose`` with drafts drawn from the lattice.

    The outcomes of ``law`` come first; all others share the last cell, whose law is 0.
    """
    generator = torch.Generator().manual_seed(seed)
    cells = {answer: index for index, answer in enumerate(law)}
    counts = torch.zeros(len(cells) + 1)
    for _ in range(num_answers):
        chooser = new()
        said: Tokens = ()
        chooser.generator = generator
        while not setting.is_over(said):
            draft = _drawn_draft(setting, said, generator) if setting.depth_after(said) else None
            path = () if draft is None else tuple(draft.token_ids.tolist())
            said += setting.cut(tuple(chooser.choose(setting.rows(said, path), draft)))
        counts[cells.get(said, len(cells))] += 1
    return counts, torch.tensor([*law.values(), 0.0], dtype=torch.float64)


def _drawn_draft(setting: Setting, said: Tokens, generator: torch.Generator) -> Draft:
    lattice = setting.lattice(said, setting.depth_after(said))
    picks: list[int] = []
    told = []
    for depth in range(lattice.depth):
        scores = lattice.edge_scores[depth, picks[-1] if picks else 0]
        picks.append(int(torch.multinomial(setting.drawn(scores), 1, generator=generator)))
        told.append((setting.claimed or setting.drawn)(scores))
    ids = lattice.candidate_ids[torch.arange(lattice.depth), torch.tensor(picks)]
    return Draft(ids, torch.stack(told), lattice)


def total_variation(one: Law, other: Law) -> float:
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys()) / 2
