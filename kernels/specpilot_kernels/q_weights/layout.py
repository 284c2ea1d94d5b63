"""INT8 and INT6 copies of a weight: W[n, k] is about ``scales[n] * q[n, k]``.

Integers lie in the panels of :mod:`specpilot_kernels.skinny_gemm.layout`, 16 columns beside each other in their order,
a byte each. INT6 integers are -31 to 31 and take a byte here too, where the product is read from: this form saves
arithmetic's input, not its bytes, and :attr:`QWeight.format_bytes` counts six bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["NUM_BITS", "NumBits", "QWeight"]

NumBits = Literal[8, 6]
NUM_BITS: tuple[NumBits, ...] = (8, 6)


@dataclass(frozen=True, eq=False)
class QWeight:
    """A quantised weight, (N, K). Never written to, so threads may share it.

    Attributes
    ----------
    panels : array, int8, (4 ceil(N / 64), K, 16), contiguous
        -127 to 127 for 8 bits, -31 to 31 for 6.
    scales : array, float32, (N,)
        0 for a row of zeros.
    num_bits
        8 or 6.
    """

    panels: NDArray[np.int8]
    scales: NDArray[np.float32]
    num_bits: NumBits

    @property
    def num_columns(self) -> int:
        """N, the outputs."""
        return len(self.scales)

    @property
    def num_inputs(self) -> int:
        """K."""
        return int(self.panels.shape[1])

    @property
    def memory_bytes(self) -> int:
        """Bytes held here."""
        return self.panels.nbytes + self.scales.nbytes

    @property
    def format_bytes(self) -> int:
        """Bytes of the integers at their own width, without padding, and the scales."""
        return self.num_columns * self.num_inputs * self.num_bits // 8 + self.scales.nbytes
