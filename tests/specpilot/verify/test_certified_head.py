"""The certified head chooses the full head's token, whatever the numbers, and a bound that says less is caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot.errors import ConfigError
from specpilot.verify.certified_head import CertifiedHead, Rounding
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm


def _random(shape: tuple[int, int], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _full(hidden: Tensor, weight: PackedWeight, rounding: Rounding) -> Tensor:
    logits = skinny_gemm(hidden, weight)
    return logits.bfloat16().float() if rounding == "bfloat16" else logits


def _check(head: Tensor, hidden: Tensor, rounding: Rounding = "float32", **options: int) -> CertifiedHead:
    """The certified argmax is the full head's, and every logit that is given has the full head's bits."""
    weight = PackedWeight.pack(head)
    certified = CertifiedHead(weight, rounding=rounding, **options)
    full, rows = _full(hidden, weight, rounding), certified.rows(hidden)
    np.testing.assert_array_equal(rows.argmax_ids, full.numpy().argmax(1))
    is_given = rows.logits > -torch.inf
    assert torch.equal(rows.logits[is_given], full[is_given])
    # The law of the bound itself: the screen is never further from the full head than it says.
    x = hidden.numpy()
    error = np.abs(certified.screen(x) - skinny_gemm(hidden, weight).numpy().astype(np.float64))
    assert (error <= certified.error_bounds(x)).all()
    return certified


def _near_ties(num_rows: int, num_inputs: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that all have nearly the largest logit: one row with small changes, for hidden rows along it."""
    row = _random((1, num_inputs), seed)
    head = (row + 1e-3 * _random((num_rows, num_inputs), seed + 1)).bfloat16().float()
    return head, row * torch.tensor([[1.0], [0.5], [3.0]])


@pytest.mark.parametrize("rounding", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 1), (17, 5), (64, 64), (989, 111), (1500, 256)])
def test_random(shape: tuple[int, int], rounding: Rounding) -> None:
    head, hidden = _random(shape, 0).bfloat16().float(), _random((9, shape[1]), 1)
    _check(head, hidden, rounding)


def test_float32_weights() -> None:
    _check(_random((500, 99), 2), _random((4, 99), 3))


@pytest.mark.parametrize("rounding", ["float32", "bfloat16"])
def test_near_ties(rounding: Rounding) -> None:
    for seed in range(5):
        head, hidden = _near_ties(700, 96, seed)
        _check(head, hidden, rounding)
        # Without the way out: all that survive are rescored.
        _check(head, hidden, rounding, max_survivors=700)


@pytest.mark.parametrize("rounding", ["float32", "bfloat16"])
def test_equal_rows_lowest_id_wins(rounding: Rounding) -> None:
    head = _random((300, 64), 4).bfloat16().float()
    best = int(skinny_gemm(head[7:8], PackedWeight.pack(head)).argmax())
    for twin in (5, 150, 299):
        head[twin] = head[best]
    certified = _check(head, head[7:8], rounding, max_survivors=300)
    assert certified.rows(head[7:8]).num_survivors[0] >= 4
    assert certified.rows(head[7:8]).argmax_ids[0] == min(5, best)


def test_bf16_ties_are_more() -> None:
    """Two logits that differ in float32 and are equal in BF16: the lower id wins there, the larger logit here."""
    head = torch.zeros(200, 2)
    head[150, 0], head[150, 1] = 1.0, 2.0**-7
    head[20, 0] = 1.0
    hidden = torch.tensor([[1.0, 2.0**-6]])
    for rounding, winner in (("float32", 150), ("bfloat16", 20)):
        certified = _check(head, hidden, rounding)  # type: ignore[arg-type]
        assert certified.rows(hidden).argmax_ids[0] == winner


@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e-3, 1e10, 1e18, 1e25, 3e38])
def test_sizes(size: float) -> None:
    head, hidden = _random((200, 70), 5).bfloat16().float(), _random((3, 70), 6) * size
    weight = PackedWeight.pack(head)
    rows = CertifiedHead(weight).rows(hidden)
    np.testing.assert_array_equal(rows.argmax_ids, skinny_gemm(hidden, weight).numpy().argmax(1))


@pytest.mark.parametrize("size", [1e-38, 1e-20, 1e20, 1e37])
def test_sizes_of_weights(size: float) -> None:
    head = (_random((200, 70), 7) * size).bfloat16().float()
    head[::7] *= 1e-3
    weight, hidden = PackedWeight.pack(head), _random((3, 70), 8)
    rows = CertifiedHead(weight).rows(hidden)
    np.testing.assert_array_equal(rows.argmax_ids, skinny_gemm(hidden, weight).numpy().argmax(1))


def test_zero_hidden_rows_and_rows_of_zeros() -> None:
    head, hidden = _random((400, 64), 9), _random((3, 64), 10)
    hidden[1], head[3] = 0, 0
    certified = _check(head, hidden)
    rows = certified.rows(hidden)
    assert rows.is_full.tolist() == [False, True, False]
    assert rows.num_survivors[1] == 400
    assert rows.argmax_ids[1] == 0
    _check(torch.zeros(300, 8), hidden[:, :8].contiguous())


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_takes_the_full_head(value: float) -> None:
    hidden = _random((2, 64), 11)
    hidden[0, 3] = value
    weight = PackedWeight.pack(_random((300, 64), 12))
    rows = CertifiedHead(weight).rows(hidden)
    assert rows.is_full.tolist() == [True, False]
    full = skinny_gemm(hidden, weight)
    np.testing.assert_array_equal(rows.logits[0].numpy(), full[0].numpy())
    np.testing.assert_array_equal(rows.argmax_ids, full.numpy().argmax(1))


def test_few_survive_and_their_number_is_told() -> None:
    head, hidden = _random((4096, 256), 13), _random((8, 256), 14)
    certified = _check(head, hidden)
    rows = certified.rows(hidden)
    assert not rows.is_full.any()
    assert (rows.num_survivors >= 1).all()
    assert rows.num_survivors.max() <= 64
    np.testing.assert_array_equal(rows.num_survivors, certified.survivors(hidden.numpy()).sum(1))
    assert 0 < certified.memory_bytes < 4096 * (256 + 64)


def test_a_row_depends_on_no_other() -> None:
    head, hidden = _random((989, 111), 15), _random((6, 111), 16)
    certified = CertifiedHead(PackedWeight.pack(head))
    together = certified.rows(hidden)
    for row in range(6):
        alone = certified.rows(hidden[row : row + 1])
        assert alone.argmax_ids[0] == together.argmax_ids[row]
        assert alone.num_survivors[0] == together.num_survivors[row]


def test_a_bound_without_the_residual_is_caught() -> None:
    """Negative control: rounding alone does not cover what eight bits lose."""
    wrong = 0
    for seed in range(20):
        head, hidden = _near_ties(700, 96, seed)
        weight = PackedWeight.pack(head)
        certified = CertifiedHead(weight, max_survivors=700)
        certified._residuals[:] = 0
        full = skinny_gemm(hidden, weight).numpy()
        wrong += int((certified.rows(hidden).argmax_ids != full.argmax(1)).sum())
        assert (
            np.abs(certified.screen(hidden.numpy()) - full) > certified.error_bounds(hidden.numpy())
        ).any()
    assert wrong > 0


def test_a_bound_without_rounding_is_caught() -> None:
    """Negative control: a head of small integers has no residual, yet its float32 sums are rounded."""
    generator = torch.Generator().manual_seed(17)
    head = torch.randint(-127, 128, (300, 4096), generator=generator).float()
    head[:, 0] = 127
    hidden = _random((8, 4096), 18)
    certified = _check(head, hidden)
    assert certified._residuals.max() <= 1.01 * 2.0**-24 * certified._largest_norm
    certified._residuals[:] = 0
    certified._slack[:] = 0
    exact = hidden.double().numpy() @ head.double().numpy().T
    full = skinny_gemm(hidden, PackedWeight.pack(head)).numpy()
    assert (np.abs(full - exact) > certified.error_bounds(hidden.numpy())).any()


def test_wrong_options_are_refused() -> None:
    weight = PackedWeight.pack(torch.ones(2, 2))
    with pytest.raises(ConfigError, match="rounding"):
        CertifiedHead(weight, rounding="float16")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_survivors"):
        CertifiedHead(weight, max_survivors=0)


def test_a_screen_that_gives_no_numbers_takes_the_full_head() -> None:
    head, hidden = _random((500, 64), 19), _random((3, 64), 20)
    weight = PackedWeight.pack(head)
    certified = CertifiedHead(weight)
    certified._scales[7] = np.nan
    rows = certified.rows(hidden)
    assert rows.is_full.all()
    assert torch.equal(rows.logits, skinny_gemm(hidden, weight))
