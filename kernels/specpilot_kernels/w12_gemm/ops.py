"""The public function of the product, on CUDA devices."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor
from torch.library import custom_op

from specpilot_kernels.device import SupportedDevice, UnsupportedDevice, query_device
from specpilot_kernels.loader import load_library
from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12_gemm.arguments import check_bias, check_rows, pointers
from specpilot_kernels.w12_gemm.launch import MOST_ROWS, launch_product
from specpilot_kernels.w12_gemm.sm120 import w12_gemm_sm120

__all__ = ["MAX_ROWS", "w12_gemm"]

MAX_ROWS = MOST_ROWS
"""Rows of x; for more, decode and multiply."""


def w12_gemm(x: Tensor, weight: DeviceW12, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + bias: exactly the checkpoint's BF16 weights enter the product, escapes too; sums are float32.

    Every sum has one order: a row of y has the same bits in every call, on every device of as many multiprocessors,
    whatever other rows there are, as long as their number is of the same class: 1 to 8, 9 to 16, 17 to 64.

    Parameters
    ----------
    x : Tensor, bfloat16, (M, K), contiguous, on the weight's device
        1 to ``MAX_ROWS`` rows; K a multiple of 8.
    weight
        :func:`specpilot_kernels.w12.cuda.encode_on_device`, or ``to_device``.
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
        No kernel runs on the device, the kernels are not built, or the launch failed.
    """
    check_rows(x, weight.shape, weight.records.device, MAX_ROWS)
    check_bias(bias, weight.shape, weight.records.device)
    if _runs_sm120(x.device):
        return w12_gemm_sm120(x, weight, bias)
    y: Tensor = _product(x, *weight.parts, bias, weight.shape[0])
    return y


def _runs_sm120(device: torch.device) -> bool:
    found = _device(device.index) if device.type == "cuda" else None
    return isinstance(found, SupportedDevice) and found.arch == "sm120"


@custom_op("specpilot::w12_gemm", mutates_args=())
def _product(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    bias: Tensor | None,
    num_columns: int,
) -> Tensor:
    out = x.new_empty(x.shape[0], num_columns)
    launch_product("w12_gemm", _function, pointers((records, bases, slots, escapes)), x, out, (bias,))
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
def _device(index: int) -> SupportedDevice | UnsupportedDevice:
    """Asked once: it does not change, and asking takes longer than the product."""
    return query_device(index)


@functools.cache
def _function() -> ctypes._NamedFuncPointer:
    function = load_library().specpilot_w12_gemm_sm90
    function.argtypes = [ctypes.c_void_p] * 9 + [ctypes.c_uint64] + [ctypes.c_int] * 4 + [ctypes.c_void_p]
    return function
