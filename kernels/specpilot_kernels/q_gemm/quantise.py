"""Quantising where the weight is; the numbers of :mod:`specpilot_kernels.q_weights.reference`."""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.q_gemm.layout import DeviceQ, empty_records, pack_integers
from specpilot_kernels.q_weights.layout import NUM_BITS, NumBits
from specpilot_kernels.q_weights.reference import LARGEST, SHARES
from specpilot_kernels.w12.device_order import put_row_tiles
from specpilot_kernels.w12.layout import RECORD_ROWS

__all__ = ["quantise_on_device", "quantise_rows"]

_ROWS_AT_ONCE = 16 * RECORD_ROWS


@torch.no_grad()
def quantise_on_device(weight: Tensor, num_bits: NumBits) -> DeviceQ:
    """Round a weight to integers with a scale for every row, in records.

    Parameters
    ----------
    weight : Tensor, float32 or bfloat16, (N, K), any device
        Finite, N and K at least 1. Takes about 40 times the memory of 2,048 of its rows for a while, beside what is
        returned.
    num_bits
        8 or 6.

    Raises
    ------
    ValueError
        Another number of bits, dtype, shape or a value that is not finite.
    """
    if num_bits not in NUM_BITS:
        raise ValueError(f"num_bits: got {num_bits}, expected one of {NUM_BITS}")
    if weight.dtype not in (torch.float32, torch.bfloat16) or weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(
            f"weight: got {weight.dtype} {tuple(weight.shape)}, expected float32 or bfloat16 (N, K)"
        )
    shape = weight.shape[0], weight.shape[1]
    records, scales = empty_records(shape, num_bits, weight.device), []
    for first in range(0, shape[0], _ROWS_AT_ONCE):
        integers, part = quantise_rows(weight[first : first + _ROWS_AT_ONCE], num_bits)
        put_row_tiles(records, pack_integers(integers, num_bits), shape, first // RECORD_ROWS)
        scales.append(part)
    return DeviceQ(shape, num_bits, records, torch.cat(scales))


def quantise_rows(weight: Tensor, num_bits: NumBits) -> tuple[Tensor, Tensor]:
    """int8 (N, K) and float32 (N,) of some rows: for every row the share of its peak with the least squared error."""
    largest = LARGEST[num_bits]
    wide = weight.detach().double()
    if not wide.isfinite().all():
        raise ValueError("weight: got a value that is not finite, expected finite ones")
    peaks = wide.abs().amax(1)
    integers = torch.zeros(weight.shape, dtype=torch.int8, device=weight.device)
    scales = torch.zeros(len(weight), device=weight.device)
    least = torch.full((len(weight),), float("inf"), dtype=torch.float64, device=weight.device)
    for share in SHARES[num_bits]:
        scale = (peaks * share / largest).float()
        divisor = torch.where(scale == 0, 1.0, scale).double()[:, None]
        candidate = (wide / divisor).round().clamp(-largest, largest)
        error = (wide - divisor * candidate).square().sum(1)
        is_better = (error < least) & (scale != 0)
        integers = torch.where(is_better[:, None], candidate.to(torch.int8), integers)
        scales, least = torch.where(is_better, scale, scales), torch.where(is_better, error, least)
    return integers, scales
