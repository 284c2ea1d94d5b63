"""The writing on the CPU. Importing this module compiles it."""

from __future__ import annotations

from typing import Any

from specpilot_kernels.cpu_attention import norm_and_rotate
from specpilot_kernels.cpu_jit import kernel

__all__ = ["write"]


@kernel("void(f4[:,::1], f4[:,:,:,:,::1], i8, f4[:,::1], f4[:,:,::1], f4)")
def write(projected: Any, cache: Any, position: int, scales: Any, rotation: Any, eps: Any) -> None:
    num_layers, _, num_groups, capacity, dim = cache.shape
    flat, half = cache.reshape(-1), num_groups * capacity * dim
    for m in range(projected.shape[0]):
        row, angles = projected[m], rotation[position + m]
        for layer in range(num_layers):
            for group in range(num_groups):
                head = layer * num_groups + group
                at = 2 * layer * half + (group * capacity + position + m) * dim
                norm_and_rotate(row, head * dim, scales[head], eps, angles, flat, at)
                for i in range(dim):
                    flat[at + half + i] = row[(num_layers * num_groups + head) * dim + i]
