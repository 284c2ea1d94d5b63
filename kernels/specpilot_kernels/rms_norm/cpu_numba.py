"""The norm on the CPU. Importing this module compiles it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import kernel
from specpilot_kernels.cpu_vector import squared_length

__all__ = ["normalise"]


@kernel("void(f4[:,::1], f4[::1], f4, f4[:,::1])")
def normalise(x: Any, scale: Any, eps: Any, out: Any) -> None:
    """Norm of every row; ``out`` may be ``x``."""
    num_rows, width = x.shape
    for m in range(num_rows):
        row, out_row = x[m], out[m]
        length = np.float32(math.sqrt(squared_length(row, 0, width) / np.float32(width) + eps))
        for i in range(width):
            out_row[i] = row[i] / length * scale[i]
