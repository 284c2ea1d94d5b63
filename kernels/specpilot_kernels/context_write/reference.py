"""What :func:`specpilot_kernels.context_write.context_write` computes, slow and obvious."""

from __future__ import annotations

from torch import Tensor

__all__ = ["context_write_reference"]


def context_write_reference(
    projected: Tensor,
    cache: Tensor,
    position: int,
    scales: Tensor,
    rotation: Tensor,
    eps: float | None,
) -> Tensor:
    """Head by head, any float dtype. Returns the cache, new."""
    cache = cache.clone()
    num_layers, _, num_groups, _, dim = cache.shape
    for m, row in enumerate(projected):
        new_keys, new_values = row.view(2, num_layers, num_groups, dim)
        for layer in range(num_layers):
            for group in range(num_groups):
                key = new_keys[layer, group]
                if eps is not None:
                    key = key / (key.square().mean() + eps).sqrt()
                key = key * scales[layer * num_groups + group]
                pairs = key[: 2 * rotation.shape[1]].view(-1, 2)
                (a, b), (cos, sin) = pairs.clone().unbind(-1), rotation[position + m].unbind(-1)
                pairs[:, 0], pairs[:, 1] = a * cos - b * sin, a * sin + b * cos
                cache[layer, 0, group, position + m] = key
                cache[layer, 1, group, position + m] = new_values[layer, group]
    return cache
