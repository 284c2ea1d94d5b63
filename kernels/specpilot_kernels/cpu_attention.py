"""What attention kernels share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined
from specpilot_kernels.cpu_vector import squared_length

__all__ = ["norm_and_rotate"]


@inlined
def norm_and_rotate(row: Any, first: int, scale: Any, eps: Any, angles: Any, out: Any, out_at: int) -> None:
    """One head of one row: norm unless ``eps`` is negative, scale, then rotation of its leading channel pairs."""
    dim = scale.shape[0]
    length = np.float32(1)
    if eps >= np.float32(0):
        length = np.float32(math.sqrt(squared_length(row, first, dim) / np.float32(dim) + eps))
    for i in range(dim):
        out[out_at + i] = row[first + i] / length * scale[i]
    for j in range(angles.shape[0]):
        at = out_at + 2 * j
        a, b = out[at], out[at + 1]
        out[at] = a * angles[j, 0] - b * angles[j, 1]
        out[at + 1] = a * angles[j, 1] + b * angles[j, 0]
