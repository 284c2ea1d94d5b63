"""Element types of GGUF tensors, and their numbers as float32.

Quantised rows are cut into blocks. Q8_0: a float16 d and 32 signed bytes q; x = d q. Q4_1: float16 d and m and 16
bytes; the low half of byte i is q of element i, the high half that of element i + 16; x = d q + m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ELEMENT_TYPES", "ElementType", "dequantise"]


@dataclass(frozen=True)
class ElementType:
    """A type by its name in ggml; ``decode`` is None where this implementation reads none of its numbers."""

    name: str
    block_size: int
    block_bytes: int
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]] | None = None

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) // self.block_size * self.block_bytes


def dequantise(data: NDArray[np.uint8], element_type: ElementType) -> NDArray[np.float32]:
    """Whole blocks, one after the other, -> their numbers, new memory. The type must have ``decode``."""
    assert element_type.decode is not None
    return element_type.decode(data)


def _float32(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.array(data.view("<f4"), np.float32)


def _float16(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    return data.view("<f2").astype(np.float32)


def _bfloat16(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q8_0(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    blocks = data.reshape(-1, 34)
    d = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].view(np.int8) * d).reshape(-1)


def _q4_1(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    blocks = data.reshape(-1, 20)
    d, m = blocks[:, :4].copy().view("<f2").astype(np.float32).T[:, :, None]
    out = np.empty((len(blocks), 32), np.float32)
    np.multiply(blocks[:, 4:] & 15, d, out=out[:, :16])
    np.multiply(blocks[:, 4:] >> 4, d, out=out[:, 16:])
    out += m
    return out.reshape(-1)


ELEMENT_TYPES: dict[int, ElementType] = {
    0: ElementType("F32", 1, 4, _float32),
    1: ElementType("F16", 1, 2, _float16),
    2: ElementType("Q4_0", 32, 18),
    3: ElementType("Q4_1", 32, 20, _q4_1),
    6: ElementType("Q5_0", 32, 22),
    7: ElementType("Q5_1", 32, 24),
    8: ElementType("Q8_0", 32, 34, _q8_0),
    10: ElementType("Q2_K", 256, 84),
    11: ElementType("Q3_K", 256, 110),
    12: ElementType("Q4_K", 256, 144),
    13: ElementType("Q5_K", 256, 176),
    14: ElementType("Q6_K", 256, 210),
    20: ElementType("IQ4_NL", 32, 18),
    23: ElementType("IQ4_XS", 256, 136),
    30: ElementType("BF16", 1, 2, _bfloat16),
}
"""By ggml's number."""
