"""The gate on the CPU. Importing this module compiles it."""

from __future__ import annotations

from typing import Any

from specpilot_kernels.cpu_jit import kernel
from specpilot_kernels.cpu_math import silu

__all__ = ["gate"]


@kernel("void(f4[:,::1], f4[:,::1])")
def gate(gate_up: Any, out: Any) -> None:
    num_rows, width = out.shape
    for m in range(num_rows):
        row, out_row = gate_up[m], out[m]
        for i in range(width):
            out_row[i] = silu(row[i]) * row[width + i]
