"""W12 weights of a device back to BF16 there: by a kernel on CUDA devices, by the codec on the CPU."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.library import custom_op

from specpilot_kernels.loader import load_library
from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12.layout import MASKS, RECORD_ROWS, RECORD_WORDS, num_records

__all__ = ["decode_on_device", "decode_rows"]


def decode_on_device(weight: DeviceW12) -> Tensor:
    """The weight again, bfloat16 (N, K), bit for bit, on its device."""
    return decode_rows(weight, 0, weight.shape[0])


def decode_rows(weight: DeviceW12, first: int, count: int) -> Tensor:
    """Some rows of the weight, bfloat16 (count, K), bit for bit.

    Raises
    ------
    ValueError
        ``first`` is no multiple of 128, or the rows are not rows of the weight.
    RuntimeError
        On a CUDA device the kernels are not built, hold no code for it, or the launch failed.
    """
    num_rows, num_inputs = weight.shape
    if first % RECORD_ROWS or count < 1 or not 0 <= first <= num_rows - count:
        raise ValueError(
            f"rows: got {count} from {first} on, expected rows of {num_rows} that begin at a multiple of {RECORD_ROWS}"
        )
    column_tiles = num_records(weight.shape)[1]
    begin, end = first // RECORD_ROWS * column_tiles, -(-(first + count) // RECORD_ROWS) * column_tiles
    rows: Tensor = _decode(
        weight.records[begin:end],
        weight.bases[first : -(-(first + count) // RECORD_ROWS) * RECORD_ROWS],
        weight.escapes,
        weight.record_starts[begin : end + 1],
        count,
        num_inputs,
    )
    return rows


@custom_op("specpilot::w12_decode", mutates_args=())
def _decode(
    records: Tensor, bases: Tensor, escapes: Tensor, record_starts: Tensor, num_rows: int, num_inputs: int
) -> Tensor:
    if not records.is_cuda:
        return _decode_on_cpu(records, bases, escapes, record_starts, (num_rows, num_inputs))
    out = torch.empty(num_rows, num_inputs, dtype=torch.bfloat16, device=records.device)
    with torch.cuda.device(records.device):
        code = _function()(
            *(part.data_ptr() for part in (records, bases, escapes, record_starts, out)),
            num_rows,
            num_inputs,
            torch.cuda.current_stream(records.device).cuda_stream,
        )
    if code:
        raise RuntimeError(f"w12_decode: CUDA error {code} for {num_rows} x {num_inputs} on {records.device}")
    return out


@_decode.register_fake
def _(
    records: Tensor, bases: Tensor, escapes: Tensor, record_starts: Tensor, num_rows: int, num_inputs: int
) -> Tensor:
    return torch.empty(num_rows, num_inputs, dtype=torch.bfloat16, device=records.device)


def _decode_on_cpu(
    records: Tensor, bases: Tensor, escapes: Tensor, record_starts: Tensor, shape: tuple[int, int]
) -> Tensor:
    from specpilot_kernels.cpu_pool import pool_for
    from specpilot_kernels.w12.cpu_numba import decode_records  # compiles the codec

    def words(tensor: Tensor) -> NDArray[np.uint32]:
        return tensor.contiguous().numpy().view(np.uint32)

    tiled = words(records).reshape(*num_records(shape), len(MASKS), RECORD_WORDS)
    bits = np.empty(shape, np.uint16)
    decode_records(
        tiled,
        bases.contiguous().numpy(),
        words(escapes),
        words(record_starts),
        bits,
        False,
        pool_for(16 * bits.size),
    )
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


@functools.cache
def _function() -> ctypes._NamedFuncPointer:
    function = load_library().specpilot_w12_decode
    function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 2 + [ctypes.c_void_p]
    return function
