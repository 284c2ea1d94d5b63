"""Chain verification is lossless: enumerated exactly on a small vocabulary, chi-square on a larger one.

Every test of losslessness has negative controls that must fail it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specpilot.draft import Lattice
from specpilot.verify import VerifyResult, acceptance_probs, bonus_law, verify_greedy, verify_sampled
from tests.oracles.statistics import chi_square_p_value

VOCAB, DEPTH, WIDTH = 6, 3, 3
BonusRule = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class World:
    """A target whose law depends on the whole prefix, and a drafter with a lattice that does not know it."""

    def __init__(self, seed: int, *, temperature: float = 1.0, top_p: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.temperature = temperature
        ids = torch.stack([torch.randperm(VOCAB, generator=generator)[:WIDTH] for _ in range(DEPTH)])
        self.lattice = Lattice(ids, torch.randn(DEPTH, WIDTH, WIDTH, generator=generator) * 1.5)
        self.laws: dict[tuple[int, ...], Tensor] = {}
        for length in range(DEPTH + 1):
            for prefix in itertools.product(range(VOCAB), repeat=length):
                logits = torch.randn(VOCAB, generator=generator, dtype=torch.float64) * 1.5
                self.laws[prefix] = nucleus(torch.softmax(logits / temperature, -1), top_p)

    def p_rows(self, chain: tuple[int, ...]) -> Tensor:
        return torch.stack([self.laws[chain[:length]] for length in range(DEPTH + 1)])

    def draft_law(self, temperature: float) -> list[tuple[tuple[int, ...], Tensor, float]]:
        """Every chain with the rows it is drawn from and its probability."""
        chains = []
        for picks in itertools.product(range(WIDTH), repeat=DEPTH):
            parents = (0, *picks[:-1])
            scores = torch.stack([self.lattice.edge_scores[t, parents[t]] for t in range(DEPTH)])
            q_rows = torch.softmax(scores.double() / temperature, -1)
            chain = tuple(int(self.lattice.candidate_ids[t, picks[t]]) for t in range(DEPTH))
            chains.append((chain, q_rows, float(q_rows[torch.arange(DEPTH), list(picks)].prod())))
        return chains

    def target_law(self) -> Tensor:
        """Law of the first DEPTH + 1 tokens under the target alone."""
        law = torch.zeros((VOCAB,) * (DEPTH + 1), dtype=torch.float64)
        for tokens in itertools.product(range(VOCAB), repeat=DEPTH + 1):
            law[tokens] = torch.stack([self.laws[tokens[:n]][tokens[n]] for n in range(DEPTH + 1)]).prod()
        return law

    def emitted_law(self, *, scored_at: float | None = None, bonus_rule: BonusRule = bonus_law) -> Tensor:
        """Law of the first DEPTH + 1 tokens when a verify step comes first and the target goes on alone.

        Sums over every chain, every place of the first rejection, every bonus and every continuation.
        """
        law = torch.zeros((VOCAB,) * (DEPTH + 1), dtype=torch.float64)
        claimed = {chain: q_rows for chain, q_rows, _ in self.draft_law(scored_at or self.temperature)}
        for chain, _, probability in self.draft_law(self.temperature):
            q_rows, p_rows = claimed[chain], self.p_rows(chain)
            accept = acceptance_probs(torch.tensor(chain), self.lattice.candidate_ids, q_rows, p_rows)
            reached = probability
            for count in range(DEPTH + 1):
                stops = reached * (1.0 - float(accept[count])) if count < DEPTH else reached
                bonus = bonus_rule(count, self.lattice.candidate_ids, q_rows, p_rows)
                for token in range(VOCAB):
                    self._go_on(law, (*chain[:count], token), stops * float(bonus[token]))
                reached -= stops
        return law

    def _go_on(self, law: Tensor, tokens: tuple[int, ...], weight: float) -> None:
        if len(tokens) == DEPTH + 1:
            law[tokens] += weight
        elif weight > 0.0:
            for token, p in enumerate(self.laws[tokens].tolist()):
                self._go_on(law, (*tokens, token), weight * p)


def nucleus(law: Tensor, top_p: float) -> Tensor:
    """Keep the most likely tokens until their mass reaches ``top_p``."""
    values, order = law.sort(descending=True, stable=True)
    kept = order[values.cumsum(-1) - values < top_p]
    out = torch.zeros_like(law)
    out[kept] = law[kept]
    return out / out.sum()


def total_variation(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().sum()) / 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.7)])
def test_law_of_emitted_tokens_is_exactly_the_targets(seed, temperature, top_p):
    world = World(seed, temperature=temperature, top_p=top_p)
    target = world.target_law()
    assert float(target.sum()) == pytest.approx(1.0, abs=1e-12)
    assert total_variation(world.emitted_law(), target) < 1e-12


def test_control_draws_scored_at_another_temperature_change_the_law():
    world = World(0)
    assert total_variation(world.emitted_law(scored_at=0.5), world.target_law()) > 0.01


def test_control_residual_without_normalising_loses_mass():
    def unnormalised(count: int, candidate_ids: Tensor, q_rows: Tensor, p_rows: Tensor) -> Tensor:
        if count == DEPTH:
            return p_rows[count]
        return p_rows[count].scatter_add(0, candidate_ids[count], -q_rows[count]).clamp_min(0.0)

    world = World(0)
    law = world.emitted_law(bonus_rule=unnormalised)
    assert float(law.sum()) < 0.99
    assert total_variation(law, world.target_law()) > 0.01


def test_control_bonus_from_the_target_after_a_rejection_changes_the_law():
    world = World(0)
    plain = world.emitted_law(bonus_rule=lambda count, candidate_ids, q_rows, p_rows: p_rows[count])
    assert float(plain.sum()) == pytest.approx(1.0, abs=1e-12)
    assert total_variation(plain, world.target_law()) > 0.01


def test_equal_laws_accept_everything_and_leave_a_lawful_residual():
    ids = torch.arange(4)[None].expand(2, -1)
    q_rows = torch.full((2, 4), 0.25, dtype=torch.float64)
    p_rows = torch.full((3, 4), 0.25, dtype=torch.float64)
    assert acceptance_probs(torch.tensor([1, 2]), ids, q_rows, p_rows).tolist() == [1.0, 1.0]
    assert float(bonus_law(0, ids, q_rows, p_rows).sum()) == pytest.approx(1.0)


def larger_world(seed: int) -> tuple[Lattice, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(500, generator=generator)[:16][None]
    lattice = Lattice(ids, torch.randn(1, 16, 16, generator=generator) * 1.5)
    logits = torch.randn(2, 500, generator=generator) * 1.5
    logits[:, ids[0]] += 3.0
    return lattice, torch.softmax(logits, -1)


def first_token_counts(lattice: Lattice, p_rows: Tensor, *, drawn_at: float, scored_at: float) -> Tensor:
    generator = torch.Generator().manual_seed(2024)
    counts = torch.zeros(p_rows.shape[1])
    scored = torch.softmax(lattice.edge_scores[:, 0].double() / scored_at, -1)
    for _ in range(6_000):
        ids, q_rows = lattice.sample_chain(drawn_at, generator)
        claimed = q_rows if drawn_at == scored_at else scored
        result = verify_sampled(ids, lattice.candidate_ids, claimed, p_rows, generator)
        counts[int(ids[0]) if result.num_correct_drafts else result.bonus_id] += 1
    return counts


def test_first_token_on_500_tokens_passes_chi_square():
    """6,000 steps, fixed seed, level 0.001."""
    lattice, p_rows = larger_world(1)
    counts = first_token_counts(lattice, p_rows, drawn_at=1.0, scored_at=1.0)
    assert chi_square_p_value(counts, p_rows[0]) > 0.001


def test_control_chi_square_rejects_draws_scored_at_another_temperature():
    lattice, p_rows = larger_world(1)
    counts = first_token_counts(lattice, p_rows, drawn_at=1.0, scored_at=0.5)
    assert chi_square_p_value(counts, p_rows[0]) < 1e-6


def test_verify_sampled_draws_from_its_two_laws():
    """Joint law of (accepted, bonus) for one fixed chain: chi-square, 6,000 draws, fixed seed, level
    0.001."""
    world = World(4)
    chain, q_rows, _ = world.draft_law(1.0)[5]
    ids, p_rows = torch.tensor(chain), world.p_rows(chain)
    accept = [*acceptance_probs(ids, world.lattice.candidate_ids, q_rows, p_rows).tolist(), 0.0]
    law, reached = torch.zeros(DEPTH + 1, VOCAB, dtype=torch.float64), 1.0
    for count in range(DEPTH + 1):
        law[count] = (
            reached * (1 - accept[count]) * bonus_law(count, world.lattice.candidate_ids, q_rows, p_rows)
        )
        reached *= accept[count]
    generator, counts = torch.Generator().manual_seed(7), torch.zeros(DEPTH + 1, VOCAB)
    for _ in range(6_000):
        result = verify_sampled(ids, world.lattice.candidate_ids, q_rows, p_rows, generator)
        counts[result.num_correct_drafts, result.bonus_id] += 1
    assert chi_square_p_value(counts.flatten(), law.flatten()) > 0.001


def test_verify_sampled_advances_the_generator_alike_whatever_happens():
    world = World(0)
    states = set()
    for chain, q_rows, _ in world.draft_law(1.0):
        generator = torch.Generator().manual_seed(3)
        verify_sampled(
            torch.tensor(chain), world.lattice.candidate_ids, q_rows, world.p_rows(chain), generator
        )
        states.add(bytes(generator.get_state().tolist()))
    assert len(states) == 1


@pytest.mark.parametrize("num_correct", range(4))
def test_greedy_accepts_up_to_the_first_difference(num_correct):
    argmax = torch.tensor([4, 8, 15, 16])
    drafts = argmax[:3].clone()
    drafts[num_correct:] += 1
    assert verify_greedy(drafts, argmax) == VerifyResult(num_correct, int(argmax[num_correct]))


def test_greedy_never_accepts_after_a_rejection():
    assert verify_greedy(torch.tensor([9, 2, 3]), torch.tensor([1, 2, 3, 4])) == VerifyResult(0, 1)


def test_without_drafts_only_the_bonus_is_emitted():
    none, generator = torch.empty(0, dtype=torch.int64), torch.Generator().manual_seed(0)
    assert verify_greedy(none, torch.tensor([3])) == VerifyResult(0, 3)
    p_rows = torch.tensor([[0.0, 0.0, 1.0]])
    empty = none.view(0, 2)
    assert verify_sampled(none, empty, empty.double(), p_rows, generator) == VerifyResult(0, 2)


def test_misuse_is_refused():
    ids, q_rows, p_rows = torch.tensor([[1, 2]]), torch.tensor([[1.0, 0.0]]), torch.full((2, 4), 0.25)
    with pytest.raises(ValueError, match="target_argmax"):
        verify_greedy(torch.tensor([1]), torch.tensor([1]))
    for draft in (2, 3):  # of probability 0, and no candidate at all
        with pytest.raises(ValueError, match="probability 0"):
            acceptance_probs(torch.tensor([draft]), ids, q_rows, p_rows)
    with pytest.raises(ValueError, match="expected"):
        acceptance_probs(torch.tensor([1]), ids, q_rows, p_rows[:1])
