"""The public functions of the codec."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.cpu_pool import pool_for
from specpilot_kernels.w12.cpu_numba import choose_bases, decode_records, encode_records, list_escapes
from specpilot_kernels.w12.layout import RECORD_ROWS, RECORD_WORDS, W12Weight, num_records

__all__ = ["decode_into", "decode_w12", "encode_w12", "view_w12"]


def encode_w12(weight: Tensor) -> W12Weight:
    """Encode a weight; :func:`decode_w12` gives every bit back.

    Parameters
    ----------
    weight : Tensor, bfloat16, (N, K), CPU
        Any values, NaN too. Read, not kept.

    Raises
    ------
    ValueError
        Another dtype, device or number of dimensions.
    """
    if weight.dtype != torch.bfloat16 or weight.ndim != 2 or weight.device.type != "cpu":
        raise ValueError(
            f"weight: got {weight.dtype} {tuple(weight.shape)} on {weight.device}, expected bfloat16 (N, K) on the CPU"
        )
    bits: NDArray[np.uint16] = weight.detach().contiguous().view(torch.int16).numpy().view(np.uint16)
    tiles = num_records(bits.shape)
    bases = np.zeros(tiles[0] * RECORD_ROWS, np.uint8)
    records = np.empty((*tiles, 3, RECORD_WORDS), np.uint32)
    num_escaped = np.zeros((len(bases), tiles[1]), np.uint8)
    pool = pool_for(16 * bits.size)
    choose_bases(bits, bases, pool)
    encode_records(bits, bases, records, num_escaped, pool)
    per_record = num_escaped.reshape(tiles[0], RECORD_ROWS, tiles[1]).sum(1, dtype=np.int64).reshape(-1)
    starts = np.concatenate((np.zeros(1, np.int64), per_record.cumsum()))
    keys = np.empty(int(starts[-1]), np.uint64)
    list_escapes(bits, bases, num_escaped, keys)
    keys.sort()
    escapes = (keys & np.uint64(2**29 - 1)).astype(np.uint32)
    return W12Weight((bits.shape[0], bits.shape[1]), records, bases, escapes, starts.astype(np.uint32))


def decode_w12(weight: W12Weight) -> Tensor:
    """The weight again, bfloat16 (N, K), bit for bit, new memory."""
    return _as_tensor(decode_into(weight, np.empty(weight.shape, np.uint16)))


def view_w12(weight: W12Weight) -> Tensor:
    """The numbers of the 8-bit view, bfloat16 (N, K), new memory: what reading planes A and E alone gives.

    The lower four mantissa bits count as 8; escapes are exact.
    """
    return _as_tensor(decode_into(weight, np.empty(weight.shape, np.uint16), is_view=True))


def decode_into(weight: W12Weight, bits: NDArray[np.uint16], *, is_view: bool = False) -> NDArray[np.uint16]:
    """Write the weight's BF16 bits, or those of its view, into a contiguous array of its shape; returns that."""
    pool = pool_for(16 * bits.size)
    decode_records(weight.records, weight.bases, weight.escapes, weight.record_starts, bits, is_view, pool)
    return bits


def _as_tensor(bits: NDArray[np.uint16]) -> Tensor:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
