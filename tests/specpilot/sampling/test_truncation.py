"""Temperature, top-k, top-p and min-p by hand-made rows and against the plain reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.engines.base import SamplingParams
from specpilot.sampling import probabilities
from tests.oracles.sampling_reference import reference_law


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
def test_nucleus(temperature: float, top_p: float, expected: list[float]) -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    params = SamplingParams(temperature=temperature, top_p=top_p)
    assert probabilities(logits, params)[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"top_k": 2}, [2 / 3, 1 / 3, 0.0, 0.0]),
        ({"top_k": 3}, [4 / 7, 2 / 7, 1 / 7, 0.0]),  # of the two equals at the border the lower id stays
        ({"top_k": 9}, [0.5, 0.25, 0.125, 0.125]),
        ({"top_k": 2, "top_p": 0.66}, [1.0, 0.0, 0.0, 0.0]),  # top-p is of the mass that top-k left
        ({"min_p": 0.25}, [0.5, 0.25, 0.125, 0.125]),
        ({"min_p": 0.26}, [2 / 3, 1 / 3, 0.0, 0.0]),
        ({"min_p": 1.0}, [1.0, 0.0, 0.0, 0.0]),
        ({"temperature": 0.5, "min_p": 0.25}, [0.8, 0.2, 0.0, 0.0]),  # temperature before min-p
    ],
)
def test_top_k_and_min_p(options: dict[str, float], expected: list[float]) -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64).log()
    params = SamplingParams(**({"temperature": 1.0} | options))  # type: ignore[arg-type]
    assert probabilities(logits, params)[0].tolist() == pytest.approx(expected, abs=1e-12)


@given(
    st.lists(st.lists(st.integers(-12, 12), min_size=7, max_size=7), min_size=1, max_size=4),
    st.floats(0.1, 2.0),
    st.integers(0, 8),
    st.sampled_from([1.0, 0.999, 0.7, 0.25, 1e-6]),
    st.sampled_from([0.0, 0.03, 0.4, 1.0]),
)
def test_rows_equal_the_reference(
    quarters: list[list[int]], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = torch.tensor(quarters, dtype=torch.float64) / 4
    for row, law in zip(logits, probabilities(logits, params), strict=True):
        assert law.tolist() == pytest.approx(reference_law(row.tolist(), params), abs=1e-9)
