"""W12 weights of a device back to BF16 there: by a kernel on CUDA devices, by the codec on the CPU."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.library import custom_op

from specpilot_kernels.loader import load_library
from specpilot_kernels.w12.cuda import DeviceW12, slot_escapes
from specpilot_kernels.w12.device_order import in_file_order, planes_together
from specpilot_kernels.w12.layout import RECORD_ROWS

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
    rows: Tensor = _decode(*weight.parts, num_rows, num_inputs, first, count)
    return rows


@custom_op("specpilot::w12_decode", mutates_args=())
def _decode(
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    num_rows: int,
    num_inputs: int,
    first: int,
    count: int,
) -> Tensor:
    parts = records, bases, slots, escapes
    if not records.is_cuda:
        return _decode_on_cpu(DeviceW12((num_rows, num_inputs), *parts), first, count)
    out = torch.empty(count, num_inputs, dtype=torch.bfloat16, device=records.device)
    with torch.cuda.device(records.device):
        code = _function()(
            *(part.data_ptr() for part in (*parts, out)),
            num_rows,
            num_inputs,
            first,
            count,
            torch.cuda.current_stream(records.device).cuda_stream,
        )
    if code:
        raise RuntimeError(f"w12_decode: CUDA error {code} for {count} x {num_inputs} on {records.device}")
    return out


@_decode.register_fake
def _(
    records: Tensor,
    bases: Tensor,
    slots: Tensor,
    escapes: Tensor,
    num_rows: int,
    num_inputs: int,
    first: int,
    count: int,
) -> Tensor:
    return torch.empty(count, num_inputs, dtype=torch.bfloat16, device=records.device)


def _decode_on_cpu(weight: DeviceW12, first: int, count: int) -> Tensor:
    from specpilot_kernels.cpu_pool import pool_for
    from specpilot_kernels.w12.cpu_numba import decode_records  # compiles the codec

    def words(tensor: Tensor) -> NDArray[np.uint32]:
        return tensor.contiguous().numpy().view(np.uint32)

    tile = first // RECORD_ROWS
    tiles = slice(tile, -(-(first + count) // RECORD_ROWS))
    num_tiles = tiles.stop - tile
    records, slots = (
        in_file_order(part, weight.shape, tile, num_tiles) for part in (weight.records, weight.slots)
    )
    escapes, counts = slot_escapes(slots, weight.escapes)
    starts = nn.functional.pad(counts.sum(-1).view(-1).cumsum(0), (1, 0)).to(torch.int32)
    bits = np.empty((count, weight.shape[1]), np.uint16)
    decode_records(
        words(planes_together(records)),
        weight.bases.view(-1, RECORD_ROWS)[tiles].reshape(-1).numpy(),
        words(escapes),
        words(starts),
        bits,
        False,
        pool_for(16 * bits.size),
    )
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


@functools.cache
def _function() -> ctypes._NamedFuncPointer:
    function = load_library().specpilot_w12_decode
    function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 4 + [ctypes.c_void_p]
    return function
