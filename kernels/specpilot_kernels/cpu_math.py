"""Elementary functions for CPU kernels, in float32.

The C library's exponential is called for one number at a time. This one is arithmetic only, so the compiler turns a
loop over it into vector code, and its result is the same in a loop and alone, and on every machine. The functions
work inside kernels only; a number that is no number stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_vector import fma

__all__ = ["exp", "sigmoid", "silu", "softplus"]

_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic

_ONE = np.float32(1)
_LOG2_E = np.float32(1.4426950408889634)
# ln 2 as a sum, so that n ln 2 has its error in the second part only.
_LN2_HIGH = np.float32(0.6931471805599453)
_LN2_LOW = np.float32(0.6931471805599453 - float(_LN2_HIGH))
# Beyond these the result is 0 or infinite, and the powers of two below would leave their format.
_LOWEST, _HIGHEST = np.float32(-104), np.float32(89)
# Added to a small number, 1.5 * 2^23 leaves the nearest integer in the low bits.
_ROUNDER = np.float32(12582912)
_ROUNDER_BITS = 0x4B400000
# (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, least squares of the relative error of exp; together 4e-9.
_C0, _C1, _C2 = np.float32(0.49999988), np.float32(0.16666518), np.float32(0.041669533)
_C3, _C4 = np.float32(0.008368923), np.float32(0.0013751382)
# From here on softplus(x) = x in float32.
_SOFTPLUS_LINEAR = np.float32(20)


@inlined
def exp(x: Any) -> Any:
    """e^x within 1.5 units in the last place."""
    x = _LOWEST if x < _LOWEST else x
    x = _HIGHEST if x > _HIGHEST else x
    rounded = fma(x, _LOG2_E, _ROUNDER)
    n = rounded - _ROUNDER
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    tail = fma(fma(fma(fma(_C4, r, _C3), r, _C2), r, _C1), r, _C0)
    return _times_two_to_the(fma(tail, r * r, r) + _ONE, rounded)


@inlined
def sigmoid(x: Any) -> Any:
    return _ONE / (_ONE + exp(-x))


@inlined
def silu(x: Any) -> Any:
    """x sigmoid(x); below -88.7, where it is less than 3e-37, 0."""
    return x / (_ONE + exp(-x))


@inlined
def softplus(x: Any) -> Any:
    """log(1 + e^x), with the C library's logarithm."""
    return x if x > _SOFTPLUS_LINEAR else np.float32(math.log1p(exp(x)))


@_intrinsic
def _times_two_to_the(typing: Any, value: Any, rounded: Any) -> Any:
    """value * 2^n, where ``rounded`` = n + 1.5 * 2^23 and -150 <= n <= 129: in two steps, each a power in range."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, rounded = args
        word = ir.IntType(32)
        n = builder.sub(builder.bitcast(rounded, word), word(_ROUNDER_BITS))
        half = builder.ashr(n, word(1))
        for exponent in (half, builder.sub(n, half)):
            bits = builder.shl(builder.add(exponent, word(127)), word(23))
            value = builder.fmul(value, builder.bitcast(bits, value.type))
        return value

    return types.float32(types.float32, types.float32), generate
