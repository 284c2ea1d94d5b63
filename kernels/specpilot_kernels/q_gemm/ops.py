"""The public functions of the products over cheaper copies of a weight, on CUDA devices."""

from __future__ import annotations

import ctypes
import functools

from torch import Tensor
from torch.library import custom_op

from specpilot_kernels.loader import load_library
from specpilot_kernels.q_gemm.layout import DeviceQ
from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12_gemm.arguments import check_rows, pointers
from specpilot_kernels.w12_gemm.launch import launch_product

__all__ = ["MAX_ROWS", "q_gemm", "w12_view_gemm"]

MAX_ROWS = 32
"""Rows of x."""


def q_gemm(x: Tensor, weight: DeviceQ) -> Tensor:
    """``y[m, n] = scales[n] * sum over k of x[m, k] * q[n, k]``: sums are float32, in one order.

    A row of y has the same bits in every call, on every device of as many multiprocessors, whatever other rows there
    are, as long as their number is of the same class: 1 to 8, 9 to 16, 17 to 32.

    Parameters
    ----------
    x : Tensor, bfloat16, (M, K), contiguous, on the weight's device
        1 to ``MAX_ROWS`` rows; K a multiple of 8.
    weight
        :func:`specpilot_kernels.q_gemm.quantise_on_device`.

    Returns
    -------
    Tensor, bfloat16, (M, N)

    Raises
    ------
    ValueError
        A shape, dtype, stride or device is not as stated.
    RuntimeError
        The device is not Hopper, the kernels are not built, or the launch failed.
    """
    check_rows(x, weight.shape, weight.records.device, MAX_ROWS)
    y: Tensor = _q_product(x, weight.records, weight.scales, weight.num_bits)
    return y


def w12_view_gemm(x: Tensor, weight: DeviceW12) -> Tensor:
    """y = x V^T with the 8-bit view V of a W12 weight: planes A and E and escapes are read, two thirds of the bytes.

    V is what :func:`specpilot_kernels.w12.view_w12` gives, bit for bit. Arguments, result and errors as
    :func:`q_gemm`.
    """
    check_rows(x, weight.shape, weight.records.device, MAX_ROWS)
    y: Tensor = _view_product(x, *weight.parts, weight.shape[0])
    return y


@custom_op("specpilot::q_gemm", mutates_args=())
def _q_product(x: Tensor, records: Tensor, scales: Tensor, num_bits: int) -> Tensor:
    out = x.new_empty(x.shape[0], len(scales))
    load = functools.partial(_function, "q_gemm")
    launch_product("q_gemm", load, (num_bits, *pointers((records, scales))), x, out)
    return out


@_q_product.register_fake
def _(x: Tensor, records: Tensor, scales: Tensor, num_bits: int) -> Tensor:
    return x.new_empty(x.shape[0], len(scales))


@custom_op("specpilot::w12_view_gemm", mutates_args=())
def _view_product(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    num_columns: int,
) -> Tensor:
    out = x.new_empty(x.shape[0], num_columns)
    load = functools.partial(_function, "w12_view_gemm")
    launch_product("w12_view_gemm", load, pointers((records, bases, slots, escapes)), x, out)
    return out


@_view_product.register_fake
def _(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    num_columns: int,
) -> Tensor:
    return x.new_empty(x.shape[0], num_columns)


@functools.cache
def _function(name: str) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(load_library(), f"specpilot_{name}_sm90")
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    first: list[type] = [integer, *[pointer] * 6] if name == "q_gemm" else [pointer] * 8
    function.argtypes = [*first, ctypes.c_uint64, *[integer] * 4, pointer]
    return function
