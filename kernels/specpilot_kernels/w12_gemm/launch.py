"""A launch of the sm90 products, for every form of records."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specpilot_kernels.device import require_hopper
from specpilot_kernels.w12.device_order import WARPS
from specpilot_kernels.w12.layout import RECORD_ROWS
from specpilot_kernels.w12_gemm.arguments import aligned, check_launch, pointers
from specpilot_kernels.w12_gemm.plan import Kernel, plan_product

__all__ = ["MOST_ROWS", "launch_product"]

MOST_ROWS = 64
"""Rows of x of a launch."""


def launch_product(
    name: str,
    load_function: Callable[[], ctypes._NamedFuncPointer],
    weight: Sequence[int | None],
    x: Tensor,
    out: Tensor,
    bias: Sequence[Tensor | None] = (),
) -> None:
    """Write the product of x, (M, K), and a weight, (N, K), to ``out``, (M, N), by the kernel of their plan.

    Parameters
    ----------
    name
        For errors.
    load_function
        Gives the compiled function, which takes what is here in this order: the weight, x, the bias, out, what blocks
        leave for each other and a mark, N, K, M, the plan and the stream.
    bias
        Nothing for a function that takes none.

    Raises
    ------
    RuntimeError
        The device is not Hopper, the kernels are not built, or the launch failed.
    """
    require_hopper(name, x.device)
    x = aligned(x)
    shape = out.shape[1], x.shape[1]
    plan = plan_product(x.shape[0], shape)
    partials, flags, mark = _workspace(plan.kernel, x.device)
    with torch.cuda.device(x.device):
        code = load_function()(
            *weight,
            *pointers((x, *bias, out, partials, flags)),
            mark,
            *shape,
            x.shape[0],
            plan.code,
            torch.cuda.current_stream(x.device).cuda_stream,
        )
    check_launch(code, name, x, shape[0])


def _workspace(kernel: Kernel, device: torch.device) -> tuple[Tensor | None, Tensor | None, int]:
    """Partial sums and flags of a stream, and the mark of the launch; other kernels need none.

    Made anew for every launch: kept memory would be shared by all graphs captured on one stream, whose replays need not
    follow each other. Nothing is written to it before: a flag says that sums are there when it has the mark of the
    launch, 64 random bits, so that what stood there earlier does not say it.
    """
    if kernel is not Kernel.STREAM:
        return None, None, 0
    num_blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    partials = torch.empty(num_blocks, MOST_ROWS, RECORD_ROWS, dtype=torch.float32, device=device)
    flags = torch.empty(num_blocks, WARPS, dtype=torch.int64, device=device)
    return partials, flags, secrets.randbits(64) or 1
