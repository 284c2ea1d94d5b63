"""The writing on the CPU. Importing this module compiles it."""

from __future__ import annotations

from typing import Any

from specpilot_kernels.cpu_attention import norm_and_rotate
from specpilot_kernels.cpu_jit import kernel

__all__ = ["write"]


@kernel("void(f4[:,::1], f4[:,:,:,::1], f4[:,:,:,::1], i8, f4[:,::1], f4[:,:,::1], f4)")
def write(
    projected: Any, keys: Any, values: Any, position: int, scales: Any, rotation: Any, eps: Any
) -> None:
    num_layers, num_groups, capacity, dim = keys.shape
    keys_flat, values_flat = keys.reshape(-1), values.reshape(-1)
    for m in range(projected.shape[0]):
        row, angles = projected[m], rotation[position + m]
        for head in range(num_layers * num_groups):
            at = (head * capacity + position + m) * dim
            norm_and_rotate(row, head * dim, scales[head], eps, angles, keys_flat, at)
            for i in range(dim):
                values_flat[at + i] = row[(num_layers * num_groups + head) * dim + i]
