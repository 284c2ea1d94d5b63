"""Chains read off a lattice: brute force, ties, and the law of sampled chains."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specpilot.draft import Lattice
from tests.oracles.statistics import chi_square_p_value


def random_lattice(depth: int, width: int, seed: int, levels: int | None = None) -> Lattice:
    """``levels`` draws scores from that many integers, so that ties abound."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(50, generator=generator)[:width] for _ in range(depth)])
    shape = (depth, width, width)
    scores = torch.randn(shape, generator=generator) * 2.0
    if levels is not None:
        scores = torch.randint(levels, shape, generator=generator).float()
    return Lattice(ids, scores)


def rows_of(lattice: Lattice, chain: Tensor) -> list[Tensor]:
    """The score row each token of ``chain`` was chosen from."""
    row, rows = 0, []
    for depth, token in enumerate(chain.tolist()):
        rows.append(lattice.edge_scores[depth, row])
        row = lattice.candidate_ids[depth].tolist().index(token)
    return rows


@given(st.integers(1, 15), st.integers(1, 16), st.integers(0, 2**32), st.sampled_from([None, 1, 2, 4]))
def test_greedy_chain_takes_the_best_score_and_the_lowest_id_among_equals(depth, width, seed, levels):
    lattice = random_lattice(depth, width, seed, levels)
    chain = lattice.greedy_chain()
    assert chain.dtype == torch.int64
    for ids, row, token in zip(
        lattice.candidate_ids.tolist(), rows_of(lattice, chain), chain.tolist(), strict=True
    ):
        best = row.max()
        assert token == min(one for one, score in zip(ids, row.tolist(), strict=True) if score == best)


@given(st.integers(1, 6), st.integers(2, 16), st.integers(0, 2**32), st.integers(0, 2**32))
def test_greedy_chain_ignores_the_order_of_candidates(depth, width, seed, shuffle):
    lattice = random_lattice(depth, width, seed, levels=2)
    generator = torch.Generator().manual_seed(shuffle)
    orders = [torch.randperm(width, generator=generator) for _ in range(depth)]
    ids = torch.stack([lattice.candidate_ids[t, orders[t]] for t in range(depth)])
    scores = torch.stack(
        [
            lattice.edge_scores[t][orders[t - 1] if t else torch.arange(width)][:, orders[t]]
            for t in range(depth)
        ]
    )
    assert torch.equal(Lattice(ids, scores).greedy_chain(), lattice.greedy_chain())


def test_edge_logprobs_are_normalised_over_the_candidates():
    lattice = random_lattice(4, 16, 0)
    assert torch.allclose(lattice.edge_logprobs.exp().sum(-1), torch.ones(4, 16), atol=1e-6)
    difference = lattice.edge_logprobs - lattice.edge_scores
    assert torch.allclose(difference, difference[..., :1].expand_as(difference), atol=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.3])
def test_sampled_chains_have_the_law_of_the_realised_rows(temperature):
    """Chi-square over all 3^3 chains, 6,000 draws, fixed seed, level 0.001."""
    lattice = random_lattice(3, 3, 5)
    generator = torch.Generator().manual_seed(11)
    index = {chain: n for n, chain in enumerate(itertools.product(*lattice.candidate_ids.tolist()))}
    law = torch.empty(len(index), dtype=torch.float64)
    for chain, n in index.items():
        rows = rows_of(lattice, torch.tensor(chain))
        picks = [ids.index(token) for ids, token in zip(lattice.candidate_ids.tolist(), chain, strict=True)]
        law[n] = torch.tensor(
            [
                torch.softmax(row.double() / temperature, -1)[pick]
                for row, pick in zip(rows, picks, strict=True)
            ]
        ).prod()
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    counts = torch.zeros(len(index))
    for n in range(6_000):
        ids, q_rows = lattice.sample_chain(temperature, generator)
        counts[index[tuple(ids.tolist())]] += 1
        if n < 100:
            expected = [torch.softmax(row.double() / temperature, -1) for row in rows_of(lattice, ids)]
            assert torch.allclose(q_rows, torch.stack(expected), atol=1e-12)
    assert chi_square_p_value(counts, law) > 0.001
    wrong = torch.softmax(law.log() * 1.3, -1)  # negative control: as if drawn at another temperature
    assert chi_square_p_value(counts, wrong) < 1e-6


def test_a_cold_temperature_walks_the_greedy_chain():
    lattice = random_lattice(7, 16, 3)
    ids, q_rows = lattice.sample_chain(1e-5, torch.Generator().manual_seed(0))
    assert torch.equal(ids, lattice.greedy_chain())
    assert (q_rows.amax(-1) == 1.0).all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_sampling_needs_a_temperature(temperature):
    with pytest.raises(ValueError, match="temperature"):
        random_lattice(2, 2, 0).sample_chain(temperature, torch.Generator())


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 4, 5\)"):
        Lattice(torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 4, 5))


def chain_lattice(known: list[int]) -> Lattice:
    """Edges that are known after one candidate a depth only; ``known[t]`` is that candidate's row at depth t."""
    lattice = random_lattice(len(known), 4, 1)
    is_known = torch.zeros(len(known), 4, dtype=torch.bool)
    is_known[torch.arange(len(known)), torch.tensor(known)] = True
    return Lattice(lattice.candidate_ids, lattice.edge_scores.masked_fill(~is_known[..., None], -torch.inf))


def test_unknown_edges_have_no_probability_and_spoil_no_other():
    lattice = chain_lattice([0, 2, 1])
    for depth, row in enumerate([0, 2, 1]):
        expected = torch.log_softmax(lattice.edge_scores[depth, row], -1)
        assert torch.equal(lattice.edge_logprobs[depth, row], expected)
    assert (lattice.edge_logprobs.isfinite().sum((1, 2)) == 4).all()
    assert not lattice.edge_logprobs.isnan().any()


def test_a_chain_does_not_go_where_nothing_is_known():
    lattice = random_lattice(3, 4, 1)
    best = int(lattice.edge_scores[0, 0].argmax())
    known, unknown = chain_lattice([0, best, 0]), chain_lattice([0, (best + 1) % 4, 0])
    follow = int(known.edge_scores[1, best].argmax())
    whole = chain_lattice([0, best, follow])
    assert whole.greedy_chain().tolist() == [
        int(whole.candidate_ids[0, best]),
        int(whole.candidate_ids[1, follow]),
        int(whole.candidate_ids[2, whole.edge_scores[2, follow].argmax()]),
    ]
    with pytest.raises(ValueError, match="leaves what the drafter knows, at depth 1"):
        unknown.greedy_chain()
    with pytest.raises(ValueError, match="leaves what the drafter knows, at depth"):
        for seed in range(50):
            whole.sample_chain(5.0, torch.Generator().manual_seed(seed))


def test_the_first_positions_and_log_probabilities_as_they_stand():
    lattice = Lattice(torch.tensor([[1, 2], [3, 4]]), torch.full((2, 2, 2), -1.5), are_logprobs=True)
    assert torch.equal(lattice.edge_logprobs, lattice.edge_scores)
    first = lattice.first(1)
    assert first.are_logprobs and first.depth == 1 and first.candidate_ids.tolist() == [[1, 2]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_a_lattice_at_a_temperature_has_the_tempered_law(temperature):
    plain = random_lattice(3, 4, seed=1)
    plain.edge_scores[2, 1] = -torch.inf
    tempered = plain.at_temperature(temperature)
    known = plain.edge_scores > -torch.inf
    expected = torch.softmax(plain.edge_scores.double() / temperature, -1)
    torch.testing.assert_close(tempered.edge_logprobs[known].double().exp(), expected[known])
    # With mass outside: as if that mass were one more candidate.
    law = torch.tensor([0.5, 0.2, 0.1])
    lattice = Lattice(torch.tensor([[1, 2, 3]]), law.log().expand(1, 3, 3).clone(), are_logprobs=True)
    weights = torch.tensor([0.5, 0.2, 0.1, 0.2]) ** (1 / temperature)
    got = lattice.at_temperature(temperature)
    assert got.are_logprobs
    torch.testing.assert_close(got.edge_scores[0, 0].exp(), (weights / weights.sum())[:3])
    with pytest.raises(ValueError, match="temperature"):
        lattice.at_temperature(0.0)
