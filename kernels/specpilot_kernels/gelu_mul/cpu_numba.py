"""The gate on the CPU. Importing this module compiles it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import kernel
from specpilot_kernels.cpu_math import sigmoid

__all__ = ["gate"]

# 0.5 (1 + tanh(u)) is sigmoid(2 u).
_TWICE = np.float32(2 * math.sqrt(2 / math.pi))
_CUBE = np.float32(2 * math.sqrt(2 / math.pi) * 0.044715)


@kernel("void(f4[:,::1], f4[:,::1])")
def gate(gate_up: Any, out: Any) -> None:
    num_rows, width = out.shape
    for m in range(num_rows):
        row, out_row = gate_up[m], out[m]
        for i in range(width):
            g = row[i]
            out_row[i] = g * sigmoid(g * (_TWICE + _CUBE * g * g)) * row[width + i]
