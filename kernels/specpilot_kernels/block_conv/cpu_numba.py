"""The convolution on the CPU. Importing this module compiles it."""

from __future__ import annotations

from typing import Any

from specpilot_kernels.cpu_jit import kernel

__all__ = ["convolve"]


@kernel("void(f4[:,::1], f4[:,:,::1], f4[:,:,::1], i8[::1], f4[:,::1])")
def convolve(x: Any, base: Any, delta: Any, places: Any, out: Any) -> None:
    """base (taps, groups, size), delta (rows, taps, groups); a row's place in its block says what stands before it."""
    num_rows = x.shape[0]
    num_taps, num_groups, size = base.shape
    for m in range(num_rows):
        for group in range(num_groups):
            first = group * size
            for i in range(size):
                out[m, first + i] = (base[0, group, i] + delta[m, 0, group]) * x[m, first + i]
            for back in range(1, min(num_taps, places[m] + 1)):
                for i in range(size):
                    coefficient = base[back, group, i] + delta[m, back, group]
                    out[m, first + i] += coefficient * x[m - back, first + i]
