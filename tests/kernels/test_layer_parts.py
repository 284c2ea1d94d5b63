"""Joined operations: against their references, and with the bits of the single operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specpilot_kernels.layer_parts import feed_forward, norm_project, project_add
from specpilot_kernels.layer_parts.reference import (
    feed_forward_reference,
    norm_project_reference,
    project_add_reference,
)
from specpilot_kernels.rms_norm import rms_norm
from specpilot_kernels.silu_mul import silu_mul
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm_arrays

EPS = 1e-6
ROWS = (1, 3, 8, 77)
SIZES = [(1, 1), (17, 99), (256, 704)]


def rows(count: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, count, width]).standard_normal((count, width), np.float32)


def weight(num_columns: int, num_inputs: int) -> PackedWeight:
    return PackedWeight.pack(torch.from_numpy(rows(num_columns, num_inputs, 1)).bfloat16())


@pytest.mark.parametrize("count", ROWS)
@pytest.mark.parametrize(("width", "inner"), SIZES)
def test_bits_are_those_of_the_single_operations(count: int, width: int, inner: int) -> None:
    x, scale = rows(count, width), rows(1, width, 2)[0]
    wide, gate_up, down = weight(inner, width), weight(2 * inner, width), weight(width, inner)
    kept = x.copy()
    projected = norm_project(x, scale, EPS, wide)
    assert (x == kept).all()
    assert (projected == skinny_gemm_arrays(rms_norm(x, scale, EPS), wide)).all()
    expected = x + skinny_gemm_arrays(projected, down)
    project_add(x, projected, down)
    assert (x == expected).all()
    gated = silu_mul(skinny_gemm_arrays(rms_norm(x, scale, EPS), gate_up))
    expected = x + skinny_gemm_arrays(gated, down)
    feed_forward(x, scale, EPS, gate_up, down)
    assert (x == expected).all() and not (x == kept).all()


@pytest.mark.parametrize("count", ROWS)
@pytest.mark.parametrize(("width", "inner"), SIZES)
def test_agrees_with_its_reference(count: int, width: int, inner: int) -> None:
    scale = rows(1, width, 2)[0]
    wide, gate_up, down = weight(inner, width), weight(2 * inner, width), weight(width, inner)
    exact = [torch.from_numpy(array).double() for array in (rows(count, width), scale, rows(count, inner))]
    x, exact_scale, y = exact
    weights = [one.unpack().double() for one in (wide, gate_up, down)]
    got = [rows(count, width) for _ in range(2)]
    project_add(got[0], rows(count, inner), down)
    feed_forward(got[1], scale, EPS, gate_up, down)
    pairs = [
        (
            norm_project(rows(count, width), scale, EPS, wide),
            norm_project_reference(x, exact_scale, EPS, weights[0]),
        ),
        (got[0], project_add_reference(x, y, weights[2])),
        (got[1], feed_forward_reference(x, exact_scale, EPS, weights[1], weights[2])),
    ]
    for one, truth in pairs:
        error = np.abs(one - truth.numpy()).max()
        assert error <= 1e-5 * max(1.0, float(truth.abs().max()))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads_do_not_show(num_threads: int, kernel_threads: object) -> None:
    x, scale = rows(9, 64), rows(1, 64, 2)[0]
    expected = x + skinny_gemm_arrays(
        silu_mul(skinny_gemm_arrays(rms_norm(x, scale, EPS), weight(192, 64))), weight(64, 96)
    )
    kernel_threads(num_threads)  # type: ignore[operator]
    feed_forward(x, scale, EPS, weight(192, 64), weight(64, 96))
    assert (x == expected).all()


def test_wrong_arguments_are_refused() -> None:
    x, scale = rows(3, 64), rows(1, 64)[0]
    wide = PackedWeight.pack(torch.from_numpy(rows(64, 64, 1)))
    assert wide.element_type == "float32"
    with pytest.raises(ValueError, match=r"a weight of bfloat16 \(32, 65\)"):
        norm_project(x, scale, EPS, weight(32, 65))
    with pytest.raises(ValueError, match=r"scale \(63,\)"):
        norm_project(x, scale[1:], EPS, weight(32, 64))
    with pytest.raises(ValueError, match="a weight of float32"):
        norm_project(x, scale, EPS, wide)
    with pytest.raises(ValueError, match=r"x \(0, 64\)"):
        norm_project(x[:0], scale, EPS, weight(32, 64))
    with pytest.raises(ValueError, match=r"y \(2, 32\)"):
        project_add(x, rows(2, 32), weight(64, 32))
    with pytest.raises(ValueError, match=r"\(63, 32\)"):
        project_add(x, rows(3, 32), weight(63, 32))
    with pytest.raises(ValueError, match="float64"):
        project_add(x, rows(3, 32).astype(np.float64), weight(64, 32))
    with pytest.raises(ValueError, match="gate_up with 66 outputs"):
        feed_forward(x, scale, EPS, weight(66, 64), weight(64, 32))
    with pytest.raises(ValueError, match="a float32 down"):
        feed_forward(x, scale, EPS, weight(128, 64), wide)
