"""The feed-forward gate against float64, and a row's independence of the rows beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot_kernels.gelu_mul import gelu_mul
from specpilot_kernels.gelu_mul.reference import gelu_mul_reference

WIDTHS = (1, 15, 99, 111, 704, 989)


def draw(*shape: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def apply(x: Tensor) -> Tensor:
    return torch.from_numpy(gelu_mul(x.numpy()))


@pytest.mark.parametrize("width", WIDTHS)
def test_error_is_at_most_twice_that_of_torch(width: int) -> None:
    x = draw(2000 // width + 1, 2 * width)
    truth = gelu_mul_reference(x.double())
    error = (apply(x) - truth).square().mean()
    torch_error = (F.gelu(x[:, :width], approximate="tanh") * x[:, width:] - truth).square().mean()
    assert error <= 2**2 * torch_error


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_does_not_depend_on_the_rows_beside_it(width: int) -> None:
    x = draw(33, 2 * width)
    alone = torch.cat([apply(x[row : row + 1]) for row in range(33)])
    for num_rows in range(1, 34):
        assert torch.equal(apply(x[:num_rows]), alone[:num_rows])
        assert torch.equal(apply(x[33 - num_rows :]), alone[33 - num_rows :])


def test_a_gate_far_out_is_shut_or_open() -> None:
    x = torch.tensor([[-1e30, -100.0, 100.0, 1e30, 2.0, 2.0, 2.0, 0.5]])
    assert apply(x).tolist() == [[pytest.approx(0), pytest.approx(0), 200, pytest.approx(5e29)]]


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [((2, 3), np.float32, r"\(2, 3\)"), ((0, 4), np.float32, r"\(0, 4\)"), ((2, 4), np.float64, "float64")],
)
def test_a_wrong_argument_is_refused(shape: tuple[int, ...], dtype: type, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gelu_mul(np.zeros(shape, dtype))
    with pytest.raises(ValueError, match="contiguous"):
        gelu_mul(np.zeros((4, 2), np.float32).T)
