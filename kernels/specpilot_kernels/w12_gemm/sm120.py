"""The product by mma.sync, for Blackwell workstation GPUs. It runs on Hopper too, where its arithmetic is tested."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor
from torch.library import custom_op

from specpilot_kernels.loader import load_library
from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12.layout import num_records
from specpilot_kernels.w12_gemm.arguments import aligned, check_bias, check_launch, check_rows, pointers

__all__ = ["MAX_ROWS", "plan_splits", "w12_gemm_sm120"]

MAX_ROWS = 64
_MAX_SPLITS = 8
"""Blocks of a cluster."""


def plan_splits(shape: tuple[int, int], num_multiprocessors: int) -> int:
    """In how many parts the columns of a weight (N, K) are summed.

    A block has 256 rows of W and a part of K, and a multiprocessor one block: the more parts while all blocks run at
    once. It does not depend on the rows of x, and neither do the bits of y.
    """
    row_tiles, column_tiles = num_records(shape)
    blocks = -(-row_tiles // 2)
    return max(1, min(_MAX_SPLITS, column_tiles, num_multiprocessors // blocks))


def w12_gemm_sm120(x: Tensor, weight: DeviceW12, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + bias: exactly the checkpoint's BF16 weights enter the product, escapes too; sums are float32.

    Every sum has one order: a row of y has the same bits whatever other rows there are.

    Parameters
    ----------
    x : Tensor, bfloat16, (M, K), contiguous, on the weight's device
        1 to ``MAX_ROWS`` rows; K a multiple of 8.
    bias : Tensor, bfloat16, (N,), contiguous, on the weight's device
        Added in float32, before the one rounding.

    Returns
    -------
    Tensor, bfloat16, (M, N)

    Raises
    ------
    ValueError
        A shape, dtype, stride or device is not as stated.
    RuntimeError
        The kernels are not built, hold no code for the device, or the launch failed.
    """
    check_rows(x, weight.shape, weight.records.device, MAX_ROWS)
    check_bias(bias, weight.shape, weight.records.device)
    y: Tensor = _product(x, *weight.parts, bias, weight.shape[0])
    return y


@custom_op("specpilot::w12_gemm_sm120", mutates_args=())
def _product(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    bias: Tensor | None,
    num_columns: int,
) -> Tensor:
    if not x.is_cuda:
        raise RuntimeError(f"w12_gemm_sm120: {x.device} is no CUDA device")
    x = aligned(x)
    out = x.new_empty(x.shape[0], num_columns)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    tensors = (records, bases, slots, escapes, x, bias, out)
    with torch.cuda.device(x.device):
        code = _function()(
            *pointers(tensors),
            num_columns,
            x.shape[1],
            x.shape[0],
            plan_splits((num_columns, x.shape[1]), multiprocessors),
            torch.cuda.current_stream(x.device).cuda_stream,
        )
    check_launch(code, "w12_gemm_sm120", x, num_columns)
    return out


@_product.register_fake
def _(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    bias: Tensor | None,
    num_columns: int,
) -> Tensor:
    return x.new_empty(x.shape[0], num_columns)


@functools.cache
def _function() -> ctypes._NamedFuncPointer:
    function = load_library().specpilot_w12_gemm_sm120
    function.argtypes = [ctypes.c_void_p] * 7 + [ctypes.c_int] * 4 + [ctypes.c_void_p]
    return function
