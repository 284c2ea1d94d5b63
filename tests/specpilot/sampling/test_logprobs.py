"""The model's own log-probabilities, and ties."""

from __future__ import annotations

import pytest
import torch

from specpilot.sampling import argmax_ids, token_logprobs


def test_ties_go_to_the_lowest_id() -> None:
    logits = torch.zeros(3, 700)
    logits[0, [40, 41, 600]] = 2.0
    logits[1, [699, 3]] = 1.0
    assert argmax_ids(logits) == [40, 3, 0]


def test_logprobs_are_of_the_unscaled_row_and_ordered() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, -1.0]])
    (entry,) = token_logprobs(logits, [3], 2)
    expected = torch.log_softmax(logits.double(), -1)[0]
    assert entry.logprob == pytest.approx(float(expected[3]))
    assert [token for token, _ in entry.top] == [1, 2]


def test_rows_without_alternatives_and_more_of_them_than_tokens() -> None:
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    bare = token_logprobs(logits, [5, 0], 0)
    assert [entry.token_id for entry in bare] == [5, 0] and all(entry.top == () for entry in bare)
    full = token_logprobs(logits, [5, 0], 20)
    assert [entry.logprob for entry in full] == [entry.logprob for entry in bare]
    assert all(sorted(token for token, _ in entry.top) == list(range(6)) for entry in full)
    assert all(entry.top == tuple(sorted(entry.top, key=lambda pair: -pair[1])) for entry in full)
