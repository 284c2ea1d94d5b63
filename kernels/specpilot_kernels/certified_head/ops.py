"""The public functions of the certified head, on Hopper."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.library import custom_op

from specpilot_kernels.certified_head.bounds import DeviceHead
from specpilot_kernels.device import require_hopper
from specpilot_kernels.loader import load_library
from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12.layout import RECORD_ROWS
from specpilot_kernels.w12_gemm.arguments import aligned, check_launch, check_rows

__all__ = ["MAX_ROWS", "HeadIds", "certified_argmax", "full_argmax"]

MAX_ROWS = 32


class HeadIds(NamedTuple):
    """What a head found.

    Attributes
    ----------
    ids : Tensor, int64, (M,)
    counts : Tensor, int32, (2,)
        Rows of the head that the screen left, all rows of x together, and 1 where the full head ran.
    """

    ids: Tensor
    counts: Tensor


def certified_argmax(x: Tensor, head: DeviceHead, *, max_survivors: int | None = None) -> HeadIds:
    """The lowest id of the largest logit, rounded to BF16, of every row of x: that of :func:`full_argmax`, bit for bit.

    Nothing comes back to the host, so a CUDA graph can hold it.

    Parameters
    ----------
    x : Tensor, bfloat16, (M, K), contiguous, on the head's device
        1 to ``MAX_ROWS`` rows; K a multiple of 8. A row with a number that is not finite makes the full head run.
    max_survivors
        Of all rows of x together; with more the full head runs. None: V / 32, at least 64.

    Raises
    ------
    ValueError
        A shape, dtype, stride or device is not as stated.
    RuntimeError
        The device is not Hopper, the kernels are not built, or a launch failed.
    """
    check_rows(x, head.shape, head.exact.records.device, MAX_ROWS)
    if max_survivors is None:
        max_survivors = max(64, head.shape[0] // 32)
    if max_survivors < 1:
        raise ValueError(f"max_survivors: got {max_survivors}, expected 1 or more")
    copy = (head.copy.records, head.copy.scales, head.bounds, head.floors)
    ids, counts = _certified(x, *head.exact.parts, *copy, head.largest_norm, head.shape[0], max_survivors)
    return HeadIds(ids, counts)


def full_argmax(x: Tensor, weight: DeviceW12) -> HeadIds:
    """The same from the full head alone, W12; every number is one sum in float32, K ascending."""
    check_rows(x, weight.shape, weight.records.device, MAX_ROWS)
    ids, counts = _full(x, *weight.parts, weight.shape[0])
    return HeadIds(ids, counts)


@custom_op("specpilot::certified_argmax", mutates_args=())
def _certified(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    copy: Tensor,
    scales: Tensor,
    bounds: Tensor,
    floors: Tensor,
    largest_norm: float,
    num_columns: int,
    max_survivors: int,
) -> tuple[Tensor, Tensor]:
    require_hopper("certified_argmax", x.device)
    pitch = -(-num_columns // RECORD_ROWS) * RECORD_ROWS
    upper = x.new_empty(x.shape[0], pitch)
    survivors = x.new_empty(max_survivors, dtype=torch.int32)
    exact = tuple(part.data_ptr() for part in (records, bases, slots, escapes))
    screen = tuple(part.data_ptr() for part in (copy, scales, bounds, floors))
    memory = (upper.data_ptr(), pitch, survivors.data_ptr(), max_survivors)
    return _launch("certified_argmax", x, num_columns, (*exact, *screen, largest_norm), memory)


@_certified.register_fake
def _(x: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], dtype=torch.int64), x.new_empty(2, dtype=torch.int32)


@custom_op("specpilot::w12_argmax", mutates_args=())
def _full(
    x: Tensor,
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    num_columns: int,
) -> tuple[Tensor, Tensor]:
    require_hopper("full_argmax", x.device)
    exact = tuple(part.data_ptr() for part in (records, bases, slots, escapes))
    return _launch("full_argmax", x, num_columns, (*exact, 0, 0, 0, 0, 0.0), (0, 0, 0, 0))


@_full.register_fake
def _(x: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], dtype=torch.int64), x.new_empty(2, dtype=torch.int32)


def _launch(
    name: str, x: Tensor, num_columns: int, weights: tuple[float, ...], memory: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    head, state_bytes = _functions()
    x = aligned(x)
    ids, counts = x.new_empty(x.shape[0], dtype=torch.int64), x.new_empty(2, dtype=torch.int32)
    state = x.new_empty(state_bytes, dtype=torch.uint8)
    with torch.cuda.device(x.device):
        code = head(
            *weights,
            x.data_ptr(),
            state.data_ptr(),
            *memory,
            ids.data_ptr(),
            counts.data_ptr(),
            num_columns,
            x.shape[1],
            x.shape[0],
            torch.cuda.current_stream(x.device).cuda_stream,
        )
    check_launch(code, name, x, num_columns)
    return ids, counts


@functools.cache
def _functions() -> tuple[ctypes._NamedFuncPointer, int]:
    library = load_library()
    function, pointer, integer = library.specpilot_head_sm90, ctypes.c_void_p, ctypes.c_int
    function.argtypes = [
        *[pointer] * 8,
        ctypes.c_float,
        *[pointer] * 3,
        integer,
        pointer,
        integer,
        *[pointer] * 2,
        *[integer] * 3,
        pointer,
    ]
    return function, int(library.specpilot_head_state_bytes())
