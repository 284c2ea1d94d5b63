"""Attention without gate, norm or rotation, and with a window: against plain torch, and bit for bit in any company."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from specpilot_kernels.chain_attention import chain_attention
from specpilot_kernels.chain_attention.reference import chain_attention_reference

CAPACITY = 200
HEADS, KV_HEADS, DIM = 6, 2, 32


@dataclass(frozen=True)
class Form:
    has_gate: bool = False
    eps: float | None = None
    window: int | None = None
    pairs: int = DIM // 2


FORMS = {
    "Llama": Form(),
    "Qwen3": Form(eps=1e-6),
    "window of 1": Form(window=1),
    "window of 7": Form(eps=1e-6, window=7),
    "window of 64": Form(window=64),
    "window of 70, gate, no rotation": Form(has_gate=True, eps=1e-5, window=70, pairs=0),
    "window past the end": Form(window=1000),
}
POSITIONS = (0, 5, 63, 70, 150)


class Case:
    def __init__(self, form: Form) -> None:
        generator = torch.Generator().manual_seed(0)
        self.form = form
        self.cache = torch.randn(2, KV_HEADS, CAPACITY, DIM, generator=generator)
        self.scales = torch.randn(HEADS + KV_HEADS, DIM, generator=generator)
        self.scales[:HEADS] *= DIM**-0.5
        angles = torch.randn(CAPACITY, form.pairs, generator=generator)
        self.rotation = torch.stack((angles.cos(), angles.sin()), -1)

    def rows(self, num_rows: int) -> Tensor:
        width = (HEADS + 2 * KV_HEADS + HEADS * self.form.has_gate) * DIM
        return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(1))

    def run(self, rows: Tensor, position: int, cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Output and cache; the case's own stays as it is."""
        cache = (self.cache if cache is None else cache).clone()
        keys, values = cache.numpy()
        scales, rotation = self.scales.numpy(), self.rotation.numpy()
        form = self.form
        out = chain_attention(
            rows.numpy(), keys, values, position, scales, rotation, form.eps, window=form.window
        )
        return torch.from_numpy(out), cache

    def reference(
        self, rows: Tensor, position: int, dtype: torch.dtype, window: int | None
    ) -> tuple[Tensor, Tensor]:
        rows, cache, scales, rotation = (x.to(dtype) for x in (rows, self.cache, self.scales, self.rotation))
        out, keys, values = chain_attention_reference(
            rows, cache[0], cache[1], position, scales, rotation, self.form.eps, HEADS, window=window
        )
        return out, torch.stack((keys, values))


@pytest.fixture(params=sorted(FORMS))
def case(request: pytest.FixtureRequest) -> Case:
    return Case(FORMS[request.param])


@pytest.mark.parametrize("position", POSITIONS)
def test_error_is_at_most_twice_that_of_torch(case: Case, position: int) -> None:
    rows = case.rows(20)
    truth = case.reference(rows, position, torch.float64, case.form.window)
    ours, theirs = (
        case.run(rows, position),
        case.reference(rows, position, torch.float32, case.form.window),
    )
    for exact, got, plain in zip(truth, ours, theirs, strict=True):
        assert (got - exact).square().sum() <= 2**2 * (plain - exact).square().sum()


@pytest.mark.parametrize("position", POSITIONS)
def test_rows_at_once_are_rows_one_by_one(case: Case, position: int) -> None:
    rows = case.rows(20)
    out, cache = case.run(rows, position)
    stepped = case.cache
    for row in range(20):
        one, stepped = case.run(rows[row : row + 1], position + row, stepped)
        assert torch.equal(one[0], out[row])
    assert torch.equal(stepped, cache)
    for num_rows in (2, 3, 8, 9, 17):
        assert torch.equal(case.run(rows[:num_rows], position)[0], out[:num_rows])


def test_nothing_outside_the_window_is_read() -> None:
    case = Case(FORMS["window of 7"])
    rows = case.rows(3)
    spoiled = case.cache.clone()
    spoiled[:, :, : 150 + 1 - 7], spoiled[:, :, 153:] = torch.nan, torch.nan
    assert torch.equal(case.run(rows, 150, spoiled)[0], case.run(rows, 150)[0])


@pytest.mark.parametrize("window", [6, 8, None])
def test_another_window_is_another_function(window: int | None) -> None:
    """The comparison with torch can fail."""
    case = Case(FORMS["window of 7"])
    rows = case.rows(8)
    other, _ = case.reference(rows, 150, torch.float64, window)
    assert (case.run(rows, 150)[0] - other).abs().max() > 0.01


def test_a_window_of_nothing_and_a_negative_eps_are_refused() -> None:
    case = Case(FORMS["Llama"])
    rows, (keys, values) = case.rows(1).numpy(), case.cache.numpy()
    scales, rotation = case.scales.numpy(), case.rotation.numpy()
    with pytest.raises(ValueError, match="window: got 0"):
        chain_attention(rows, keys, values, 0, scales, rotation, None, window=0)
    with pytest.raises(ValueError, match=r"eps: got -1\.0"):
        chain_attention(rows, keys, values, 0, scales, rotation, -1.0)
