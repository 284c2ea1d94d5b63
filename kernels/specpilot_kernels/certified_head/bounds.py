"""How far a number of the screen can lie from the full head's.

Let W_n be a row of the head, s_n q_n its INT8 copy, x a row of BF16 numbers, y_n what the full head computes, and d_n
the computed product of q_n and x. Both are chains of K / 16 tensor core products, each of which adds 16 products,
exact, and the sum so far. *Assumption*, seen on V100 to A100 (Fasi et al., PeerJ Computer Science 7:e330, 2021) and
checked on the device by a test: the 17 terms are aligned to the largest and cut at 24 bits or below. No term exceeds
||W_n|| ||x||, so a product loses at most 17 * 2^-23 of that, and with gamma = 17 ceil(K / 16) 2^-23

    |y_n - W_n x| <= gamma ||W_n|| ||x||        |d_n - q_n x| <= gamma ||q_n|| ||x||
    |W_n x - s_n q_n x| <= ||W_n - s_n q_n|| ||x||                        Cauchy-Schwarz, the quantisation residual

together |s_n d_n - y_n| <= b_n ||x|| + f_n with b_n = ||W_n - s_n q_n|| + gamma (s_n ||q_n|| + ||W_n||), and f_n for
what denormal numbers lose. Row n cannot be the argmax, nor equal it, if its upper bound is below the largest lower one.
(:mod:`specpilot.verify.certified_head` is the same for the CPU, whose sums have another order and another gamma.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specpilot_kernels.q_gemm.layout import DeviceQ, empty_records, pack_integers
from specpilot_kernels.q_gemm.quantise import quantise_rows
from specpilot_kernels.w12.cuda import DeviceW12, encode_on_device
from specpilot_kernels.w12.device_order import put_row_tiles
from specpilot_kernels.w12.layout import RECORD_ROWS

__all__ = ["DeviceHead", "build_head", "gamma"]

_UP = 1 + 2.0**-30  # covers what float64 sums of squares lose, for any K below 2^22
_SMALLEST = 2.0**-126
_ROWS_AT_ONCE = 16 * RECORD_ROWS


@dataclass(frozen=True, eq=False)
class DeviceHead:
    """A head (V, K) on one device.

    Attributes
    ----------
    exact : DeviceW12
        The full head.
    copy : DeviceQ
        INT8.
    bounds, floors : Tensor, float32, (V,)
        b_n and f_n, rounded up.
    largest_norm : float
        Of rows of W, s q and q.
    """

    exact: DeviceW12
    copy: DeviceQ
    bounds: Tensor
    floors: Tensor
    largest_norm: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.exact.shape

    @property
    def memory_bytes(self) -> int:
        """Bytes held beside the full head's."""
        return self.copy.memory_bytes + 4 * (self.bounds.numel() + self.floors.numel())


def gamma(num_inputs: int) -> float:
    """Share of ||w|| ||x|| that a chain of tensor core products of K numbers may lose."""
    lost = 17 * -(-num_inputs // 16) * 2.0**-23
    return lost / (1 - lost)


@torch.no_grad()
def build_head(weight: Tensor) -> DeviceHead:
    """Encode a head, quantise it, and bound the difference.

    Parameters
    ----------
    weight : Tensor, bfloat16, (V, K), any device
        Finite. Takes about 40 times the memory of 2,048 of its rows for a while, beside what is returned.

    Raises
    ------
    ValueError
        Another dtype or shape, or a value that is not finite.
    """
    exact = encode_on_device(weight)
    records, scales, bounds = empty_records(exact.shape, 8, weight.device), [], []
    largest = torch.zeros((), dtype=torch.float64, device=weight.device)
    for first in range(0, weight.shape[0], _ROWS_AT_ONCE):
        rows = weight[first : first + _ROWS_AT_ONCE]
        integers, scale = quantise_rows(rows, 8)
        wide, q, s = rows.double(), integers.double(), scale.double()
        norms = wide.norm(dim=1), s * q.norm(dim=1), q.norm(dim=1)
        residual = (wide - s[:, None] * q).norm(dim=1)
        put_row_tiles(records, pack_integers(integers, 8), exact.shape, first // RECORD_ROWS)
        scales.append(scale)
        bounds.append((residual + gamma(weight.shape[1]) * (norms[0] + norms[1])) * _UP)
        largest = torch.stack([largest, *(norm.max() for norm in norms)]).max()
    all_scales = torch.cat(scales)
    floors = (1 + all_scales.double()) * weight.shape[1] * _SMALLEST
    copy = DeviceQ(exact.shape, 8, records, all_scales)
    return DeviceHead(exact, copy, _up(torch.cat(bounds)), _up(floors), float(largest) * _UP)


def _up(values: Tensor) -> Tensor:
    """float64 to float32, never below."""
    narrow = values.float()
    above = torch.nextafter(narrow, torch.full_like(narrow, torch.inf))
    return torch.where(narrow.double() < values, above, narrow)
