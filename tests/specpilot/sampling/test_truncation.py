"""Ties, temperature and nucleus, by hand-made rows."""

from __future__ import annotations

import pytest
import torch

from specpilot.engines.base import SamplingParams
from specpilot.refengine.sampler import argmax_ids, probabilities, sample, token_logprobs


def test_ties_go_to_the_lowest_id() -> None:
    logits = torch.zeros(3, 700)
    logits[0, [40, 41, 600]] = 2.0
    logits[1, [699, 3]] = 1.0
    assert argmax_ids(logits) == [40, 3, 0]


@pytest.mark.parametrize(
    ("temperature", "top_p", "expected"),
    [
        (1.0, 1.0, [0.5, 0.25, 0.125, 0.125]),
        (1.0, 0.75, [2 / 3, 1 / 3, 0.0, 0.0]),
        (1.0, 0.76, [4 / 7, 2 / 7, 1 / 7, 0.0]),  # of the two equals at the border the lower id stays
        (1.0, 0.1, [1.0, 0.0, 0.0, 0.0]),
        (0.5, 1.0, [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
        (0.5, 0.9, [0.8, 0.2, 0.0, 0.0]),  # temperature first, then the nucleus
    ],
)
def test_distribution(temperature: float, top_p: float, expected: list[float]) -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    params = SamplingParams(temperature=temperature, top_p=top_p)
    assert probabilities(logits, params)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_sample_follows_the_row() -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.bincount(
        torch.tensor([sample(torch.tensor([0.1, 0.0, 0.6, 0.3]), generator) for _ in range(4000)]),
        minlength=4,
    )
    expected = torch.tensor([400.0, 0.0, 2400.0, 1200.0])
    assert drawn[1] == 0
    chi_square = ((drawn - expected)[[0, 2, 3]].square() / expected[[0, 2, 3]]).sum()
    assert chi_square < 13.8  # 2 degrees of freedom, level 0.001; the seed is fixed


def test_logprobs_are_of_the_unscaled_row_and_ordered() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, -1.0]])
    (entry,) = token_logprobs(logits, [3], 2)
    expected = torch.log_softmax(logits.double(), -1)[0]
    assert entry.logprob == pytest.approx(float(expected[3]))
    assert [token for token, _ in entry.top] == [1, 2]
