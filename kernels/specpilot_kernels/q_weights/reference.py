"""Quantising and its inverse, slow and obvious."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.q_weights.layout import NumBits

__all__ = ["LARGEST", "SHARES", "dequantise_reference", "q_matmul_reference", "quantise_reference"]

LARGEST: dict[NumBits, int] = {8: 127, 6: 31}
"""Integers are -LARGEST to LARGEST, so that a number and its negative have the same fate."""

SHARES: dict[NumBits, tuple[float, ...]] = {8: (1.0,), 6: (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65)}
"""Shares of a row's largest magnitude that LARGEST may stand for. What is larger is cut off; with 6 bits that can be
the smaller error."""


def quantise_reference(
    weight: NDArray[np.float32], num_bits: NumBits
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """(N, K) -> integers (N, K) and scales (N,): for every row the share with the least squared error, the first of
    equals."""
    largest = LARGEST[num_bits]
    integers, scales = np.zeros(weight.shape, np.int8), np.zeros(len(weight), np.float32)
    for n, row in enumerate(weight.astype(np.float64)):
        least = np.inf
        for share in SHARES[num_bits]:
            scale = np.float32(np.abs(row).max() * share / largest)
            if scale == 0:
                continue
            candidate = np.clip(np.rint(row / np.float64(scale)), -largest, largest)
            error = float(((row - np.float64(scale) * candidate) ** 2).sum())
            if error < least:
                least, integers[n], scales[n] = error, candidate, scale
    return integers, scales


def dequantise_reference(integers: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 (N, K): scale times integer, rounded once."""
    return scales[:, None] * integers.astype(np.float32)


def q_matmul_reference(
    x: NDArray[np.float32], integers: NDArray[np.int8], scales: NDArray[np.float32]
) -> NDArray[np.float64]:
    """x W^T in float64: (M, K) -> (M, N)."""
    product = x.astype(np.float64) @ integers.astype(np.float64).T
    return np.asarray(product * scales.astype(np.float64), np.float64)
