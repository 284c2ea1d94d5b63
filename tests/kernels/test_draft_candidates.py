"""Candidates, pair scores and the greedy chain against their references, ties included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot_kernels.draft_candidates import greedy_chain, pair_scores, top_candidates
from specpilot_kernels.draft_candidates.reference import (
    greedy_chain_reference,
    pair_scores_reference,
    top_candidates_reference,
)

LEVELS = st.sampled_from([None, 1, 3, 20])


def draw_numbers(shape: tuple[int, ...], seed: int, levels: int | None) -> torch.Tensor:
    """Normal numbers, or with ``levels`` so few different ones that most are tied."""
    generator = torch.Generator().manual_seed(seed)
    if levels is None:
        return torch.randn(shape, generator=generator)
    return torch.randint(levels, shape, generator=generator).float()


@given(st.integers(1, 4), st.integers(1, 100), st.integers(0, 2**32), LEVELS, st.data())
def test_top_candidates_are_those_of_a_stable_sort(
    rows: int, vocab: int, seed: int, levels: int | None, data: Any
) -> None:
    k = data.draw(st.integers(1, vocab))
    logits = draw_numbers((rows, vocab), seed, levels)
    values, ids = (torch.from_numpy(part) for part in top_candidates(logits.numpy(), k))
    expected_values, expected_ids = top_candidates_reference(logits, k)
    assert torch.equal(ids, expected_ids) and torch.equal(values, expected_values)


def test_top_candidates_of_a_real_vocabulary_and_of_minus_infinity() -> None:
    logits = draw_numbers((7, 4099), 0, None)
    logits[1, 5:] = -torch.inf
    values, ids = top_candidates(logits.numpy(), 16)
    expected = top_candidates_reference(logits, 16)
    assert torch.equal(torch.from_numpy(ids), expected[1])
    assert torch.equal(torch.from_numpy(values), expected[0])


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**32))
def test_pair_scores_agree_with_the_reference(depth: int, width: int, blocks: int, seed: int) -> None:
    rank, vocab = 16 * blocks, 50
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(depth, rank, generator=generator)
    tables = torch.randn(2, vocab, rank, generator=generator)
    logits = torch.randn(depth, width, generator=generator)
    ids = torch.stack([torch.randperm(vocab, generator=generator)[:width] for _ in range(depth)])
    truth = pair_scores_reference(left.double(), logits.double(), ids, 7, *tables.double())
    got = pair_scores(left.numpy(), logits.numpy(), ids.numpy(), 7, tables[0].numpy(), tables[1].numpy())
    torch.testing.assert_close(torch.from_numpy(got).double(), truth, atol=1e-4, rtol=1e-5)
    if depth > 1:  # the predecessor matters: a lattice of another anchor differs at depth 0 alone
        other = pair_scores(
            left.numpy(), logits.numpy(), ids.numpy(), 8, tables[0].numpy(), tables[1].numpy()
        )
        assert (other[0] != got[0]).any() and (other[1:] == got[1:]).all()


@given(st.integers(1, 8), st.integers(1, 16), st.integers(0, 2**32), LEVELS)
def test_the_greedy_chain_is_the_reference_s(depth: int, width: int, seed: int, levels: int | None) -> None:
    edges = draw_numbers((depth, width, width), seed, levels)
    generator = torch.Generator().manual_seed(seed + 1)
    ids = torch.stack([torch.randperm(100, generator=generator)[:width] for _ in range(depth)])
    assert greedy_chain(ids.numpy(), edges.numpy()).tolist() == greedy_chain_reference(ids, edges).tolist()
    edges[
        torch.rand(depth, width, generator=torch.Generator().manual_seed(seed)) < 0.3
    ] = -torch.inf  # not known
    assert greedy_chain(ids.numpy(), edges.numpy()).tolist() == greedy_chain_reference(ids, edges).tolist()


def test_wrong_arguments_are_refused() -> None:
    logits, ids = np.zeros((2, 5), np.float32), np.zeros((2, 5), np.int64)
    table = np.zeros((9, 16), np.float32)
    calls: list[tuple[Any, tuple[Any, ...], str]] = [
        (top_candidates, (logits, 0), "k 0"),
        (top_candidates, (logits, 6), "k 6"),
        (top_candidates, (logits.astype(np.float64), 1), "float64"),
        (pair_scores, (table[:2, :8], logits, ids, 0, table[:, :8], table[:, :8]), "multiple of 16"),
        (pair_scores, (table[:3], logits, ids, 0, table, table), r"left \(3, 16\)"),
        (pair_scores, (table[:2], logits, ids, 9, table, table), "anchor 9"),
        (pair_scores, (table[:2], logits, ids.astype(np.int32), 0, table, table), "ids int32"),
        (greedy_chain, (ids, np.zeros((2, 5, 4), np.float32)), r"edges \(2, 5, 4\)"),
        (greedy_chain, (ids, np.zeros((2, 5, 5))), "float64"),
    ]
    for call, arguments, message in calls:
        with pytest.raises(ValueError, match=message):
            call(*arguments)
