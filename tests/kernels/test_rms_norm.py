"""The norm of rows against float64, and a row's independence of the rows beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot_kernels.rms_norm import rms_norm
from specpilot_kernels.rms_norm.reference import rms_norm_reference

WIDTHS = (1, 15, 16, 99, 111, 256, 989)
EPS = 1e-6


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def apply(x: Tensor, scale: Tensor) -> Tensor:
    return torch.from_numpy(rms_norm(x.numpy(), scale.numpy(), EPS))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e15])
def test_error_is_at_most_twice_that_of_torch(width: int, size: float) -> None:
    x, scale = size * draw(64, width), draw(width, seed=1)
    truth = rms_norm_reference(x.double(), scale.double(), EPS)
    error = (apply(x, scale) - truth).square().mean()
    torch_error = (rms_norm_reference(x, scale, EPS) - truth).square().mean()
    assert error <= 2**2 * torch_error


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_does_not_depend_on_the_rows_beside_it(width: int) -> None:
    x, scale = draw(33, width), draw(width, seed=1)
    alone = torch.cat([apply(x[row : row + 1], scale) for row in range(33)])
    for num_rows in range(1, 34):
        assert torch.equal(apply(x[:num_rows], scale), alone[:num_rows])
        assert torch.equal(apply(x[33 - num_rows :], scale), alone[33 - num_rows :])


def test_zeros_stay_zeros_and_a_broken_row_does_not_spread() -> None:
    x = draw(4, 99)
    x[1], x[2, 5] = 0, torch.nan
    y, clean = apply(x, torch.ones(99)), apply(draw(4, 99), torch.ones(99))
    assert (y[1] == 0).all() and y[2].isnan().all()
    assert torch.equal(y[[0, 3]], clean[[0, 3]])


def test_out_may_be_the_argument() -> None:
    x, scale = draw(5, 111).numpy(), draw(111).numpy()
    expected = rms_norm(x, scale, EPS)
    assert rms_norm(x, scale, EPS, x) is x
    assert np.array_equal(x, expected)


@pytest.mark.parametrize(
    ("x", "scale", "message"),
    [
        (np.zeros((2, 3), np.float32), np.zeros(4, np.float32), r"scale \(4,\)"),
        (np.zeros(3, np.float32), np.zeros(3, np.float32), r"x \(3,\)"),
        (np.zeros((0, 3), np.float32), np.zeros(3, np.float32), r"x \(0, 3\)"),
        (np.zeros((2, 3)), np.zeros(3, np.float32), "x float64"),
        (np.zeros((3, 2), np.float32).T, np.zeros(3, np.float32), "contiguous"),
    ],
)
def test_a_wrong_argument_is_refused(
    x: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        rms_norm(x, scale, EPS)
