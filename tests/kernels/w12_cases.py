"""Weights for tests of products, and what a GPU test needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specpilot_kernels.device import SupportedDevice, query_device
from specpilot_kernels.loader import BUILD_FOLDER, LIBRARY_NAME
from specpilot_kernels.w12.device_order import MOST_TILES_IN_BANDS

__all__ = ["ABOVE", "FEW_AND_MANY", "draw", "needs_gpu", "needs_hopper", "one_hot", "weight_through"]

ABOVE = 128 * MOST_TILES_IN_BANDS + 5
"""Rows of a weight whose records lie on devices as they do in files."""
FEW_AND_MANY = (0.0005, 0.02)
"""Shares of escapes: most warps have none to two of them, which slots hold, or lists."""


def draw(
    shape: tuple[int, int],
    seed: int = 0,
    *,
    share_escaped: float = 0.02,
    infinities: bool = False,
    device: str = "cpu",
) -> Tensor:
    """Numbers of many sizes, zeros and denormals among them, bfloat16; others on another device."""
    generator = torch.Generator(device).manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    weight = torch.randn(shape, generator=generator, device=device) * 0.02
    weight[uniform() < share_escaped] *= 1e-12
    weight[uniform() < share_escaped / 2] = 0.0
    if infinities:
        weight[uniform() < 0.001] = float("inf")
    return weight.bfloat16()


def one_hot(rows: int, num_inputs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows with a single 1, bfloat16, and where it stands."""
    columns = torch.randint(0, num_inputs, (rows,), generator=torch.Generator().manual_seed(seed))
    x = torch.zeros(rows, num_inputs, dtype=torch.bfloat16)
    x[torch.arange(rows), columns] = 1
    return x, columns


def weight_through(product: Callable[[Tensor], Tensor], num_inputs: int, rows: int) -> Tensor:
    """All of W as a product on a GPU reads it, (N, K): unit rows of x, ``rows`` at a time. -0 comes back as +0."""
    x = torch.eye(num_inputs, dtype=torch.bfloat16, device="cuda")
    return torch.cat([product(some) for some in x.split(rows)]).T


def _why_no_gpu(*, is_hopper: bool) -> str:
    found = query_device()
    if not isinstance(found, SupportedDevice):
        return found.reason
    if is_hopper and found.arch != "sm90":
        return f"{found.name} is {found.arch}; these kernels are of sm90"
    return "" if (BUILD_FOLDER / LIBRARY_NAME).is_file() else "the kernels are not built: make kernels"


def _skip(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(reason), reason=reason or "-")


needs_gpu, needs_hopper = _skip(_why_no_gpu(is_hopper=False)), _skip(_why_no_gpu(is_hopper=True))
