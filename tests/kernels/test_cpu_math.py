"""Elementary functions of CPU kernels against float64, over everything float32 can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specpilot_kernels import cpu_math
from specpilot_kernels.cpu_jit import kernel


def compiled(function: Callable[[Any], Any]) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    @kernel("void(f4[::1], f4[::1])")
    def run(x: Any, y: Any) -> None:
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    def apply(x: NDArray[np.float32]) -> NDArray[np.float32]:
        y = np.empty_like(x)
        run(x, y)
        return y

    return apply


exp, sigmoid, silu, softplus = map(
    compiled, (cpu_math.exp, cpu_math.sigmoid, cpu_math.silu, cpu_math.softplus)
)


def every_1009th_number() -> NDArray[np.float32]:
    """4 million numbers of either sign and every exponent."""
    numbers = np.arange(0, 2**32, 1009, dtype=np.uint32).view(np.float32)
    return numbers[np.isfinite(numbers)]


def test_exp_is_within_one_and_a_half_units_in_the_last_place() -> None:
    x = np.concatenate((every_1009th_number(), np.linspace(-104, 89, 3_000_001).astype(np.float32)))
    y = exp(x).astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        truth = np.exp(x.astype(np.float64))
        rounded = truth.astype(np.float32)
    assert np.array_equal(np.isinf(y), np.isinf(rounded))
    finite = np.isfinite(rounded)
    error = np.abs(y[finite] - truth[finite])
    assert (error <= 1.5 * np.spacing(rounded[finite]).astype(np.float64)).all()


def test_exp_of_special_numbers() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    assert np.array_equal(exp(x), np.array([np.nan, np.inf, 0, 1, 1], np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("function", "truth", "last_places"),
    [
        (sigmoid, lambda x: 1 / (1 + np.exp(-x)), 3.0),
        (silu, lambda x: x / (1 + np.exp(-x)), 3.0),
        (softplus, lambda x: np.logaddexp(0, x), 3.0),
    ],
)
def test_the_others_are_within_three(function: Any, truth: Any, last_places: float) -> None:
    x = np.concatenate((every_1009th_number(), np.linspace(-87, 87, 1_000_001).astype(np.float32)))
    with np.errstate(over="ignore", under="ignore"):
        expected = truth(x.astype(np.float64))
    allowed = last_places * np.maximum(np.spacing(np.abs(expected).astype(np.float32)), 1e-37)
    assert (np.abs(function(x) - expected) <= allowed).all()


def test_a_number_gives_the_same_bits_alone_as_in_a_vector_loop() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * 20
    for function in (exp, sigmoid, silu, softplus):
        together = function(x)
        alone = np.concatenate([function(x[i : i + 1]) for i in range(len(x))])
        assert np.array_equal(together.view(np.int32), alone.view(np.int32))
