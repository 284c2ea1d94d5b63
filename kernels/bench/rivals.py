"""The BF16 product that ours is compared with: the fastest of torch.mm by cuBLAS, torch.mm by cublasLt, and every
algorithm that cublasLt's heuristic proposes, up to 16, with a workspace of 64 MB.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cublaslt import heuristic_products
from specpilot_kernels.gpu_timing import measure_us

CHOOSING_SAMPLES = 5
LARGEST_DIFFERENCE = 0.02
"""Of two products, relative, in the 2-norm; BF16's rounding makes 0.002, partial sums in BF16 a little more."""


def bf16_products(x: Tensor, weight: Tensor, y: Tensor) -> dict[str, Callable[[], object]]:
    """Calls that write x W^T to y, by name; what :func:`heuristic_products` says of the tensors holds.

    Raises
    ------
    RuntimeError
        Two differ, or :func:`heuristic_products` raises it.
    """

    def with_library(library: str) -> Callable[[], object]:
        def multiply() -> object:
            torch.backends.cuda.preferred_blas_library(library)
            return torch.mm(x, weight.T, out=y)

        return multiply

    proposed = heuristic_products(x, weight, y)
    calls = {
        "torch.mm by cuBLAS": with_library("cublas"),
        "torch.mm by cublasLt": with_library("cublaslt"),
    } | {f"cublasLt {i + 1} of {len(proposed)}": call for i, call in enumerate(proposed)}
    expected = torch.mm(x, weight.T).float()
    for name, call in calls.items():
        y.fill_(torch.nan)
        call()
        difference = float((y.float() - expected).norm() / expected.norm())
        if not difference <= LARGEST_DIFFERENCE:
            raise RuntimeError(f"{name} gives another product: {difference:.3g} from torch.mm's")
    return calls


def best_bf16_products(
    x: Tensor, weight: Tensor, y: Tensor, warm: bool = False
) -> dict[str, Callable[[], object]]:
    """The two fastest of :func:`bf16_products`; a longer measurement, with ours in turns, says which of them wins."""
    calls = bf16_products(x, weight, y)
    times = measure_us(calls, warm=warm, samples=CHOOSING_SAMPLES)
    return {name: calls[name] for name in sorted(calls, key=lambda name: times[name].p50)[:2]}
