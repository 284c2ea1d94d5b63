"""INT8 and INT6 copies: integers and scales as the reference rounds them, a product that depends on its row alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specpilot_kernels.q_weights import NUM_BITS, NumBits, dequantise, q_matmul, quantise
from specpilot_kernels.q_weights.reference import (
    LARGEST,
    dequantise_reference,
    q_matmul_reference,
    quantise_reference,
)


def _weight(shape: tuple[int, int], seed: int = 0) -> torch.Tensor:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    weight[0] *= 1e-4
    weight[-1] = 0
    return weight


@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 99), (65, 64), (70, 111)])
def test_as_the_reference_rounds(num_bits: NumBits, shape: tuple[int, int]) -> None:
    weight = _weight(shape)
    integers, scales = quantise_reference(weight.numpy(), num_bits)
    quantised = quantise(weight, num_bits)
    np.testing.assert_array_equal(quantised.scales, scales)
    np.testing.assert_array_equal(dequantise(quantised).numpy(), dequantise_reference(integers, scales))
    assert np.abs(integers).max() <= LARGEST[num_bits]
    assert (quantised.num_columns, quantised.num_inputs) == shape


@pytest.mark.parametrize("num_bits", NUM_BITS)
def test_no_number_moves_more_than_half_a_step(num_bits: NumBits) -> None:
    """Except those a 6-bit scale cuts off, which lie beyond the largest integer."""
    weight = _weight((33, 200))
    quantised = quantise(weight, num_bits)
    step = torch.from_numpy(quantised.scales)[:, None]
    is_inside = weight.abs() <= step * LARGEST[num_bits]
    error = (dequantise(quantised) - weight).abs()
    assert (error <= step * 0.5001)[is_inside].all()
    assert is_inside.all() or num_bits == 6


def test_a_6_bit_scale_never_costs_error() -> None:
    weight = _weight((20, 500))
    error = (dequantise(quantise(weight, 6)) - weight).square().sum(1)
    peaks = weight.abs().amax(1, keepdim=True) / 31
    plain = torch.where(peaks > 0, (weight / peaks.clamp_min(1e-30)).round() * peaks, 0)
    assert (error <= (plain - weight).square().sum(1) * 1.0001).all()
    assert (error < (plain - weight).square().sum(1) * 0.9).any()


@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", [(1, 64, 64), (3, 99, 70), (8, 130, 129), (17, 64, 1)])
def test_product(num_bits: NumBits, shape: tuple[int, int, int]) -> None:
    num_rows, num_inputs, num_columns = shape
    weight, x = _weight((num_columns, num_inputs)), _weight((num_rows, num_inputs), 1).numpy()
    quantised = quantise(weight, num_bits)
    integers, scales = quantise_reference(weight.numpy(), num_bits)
    expected = q_matmul_reference(x, integers, scales)
    sizes = np.abs(x).astype(np.float64) @ (np.abs(integers).astype(np.float64) * scales[:, None]).T
    y = q_matmul(x, quantised)
    assert (np.abs(y - expected) <= 2.0**-24 * (66 + num_inputs / 64) * sizes).all()
    for row in range(num_rows):
        np.testing.assert_array_equal(q_matmul(x[row : row + 1].copy(), quantised)[0], y[row])


def test_bytes() -> None:
    eight, six = (quantise(torch.ones(128, 64), bits) for bits in NUM_BITS)
    assert eight.memory_bytes == six.memory_bytes == 128 * 64 + 4 * 128
    assert eight.format_bytes == 128 * 64 + 4 * 128
    assert six.format_bytes == 128 * 48 + 4 * 128


def test_what_is_no_weight_is_refused() -> None:
    for wrong in (torch.zeros(3), torch.zeros(0, 3), torch.zeros(2, 2, dtype=torch.float64)):
        with pytest.raises(ValueError, match="weight"):
            quantise(wrong, 8)
    with pytest.raises(ValueError, match="finite"):
        quantise(torch.tensor([[1.0, torch.nan]]), 8)
    with pytest.raises(ValueError, match="num_bits"):
        quantise(torch.ones(2, 2), 7)  # type: ignore[arg-type]
    quantised = quantise(torch.ones(2, 3), 8)
    with pytest.raises(ValueError, match="x"):
        q_matmul(np.ones((1, 4), np.float32), quantised)
    with pytest.raises(ValueError, match="x"):
        q_matmul(np.ones((1, 3)), quantised)  # type: ignore[arg-type]
