"""Checks and call of the kernels that gate one half of every row by the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["run_gate"]

_Array = NDArray[np.float32]


def run_gate(gate: Callable[[_Array, _Array], None], gate_up: _Array, out: _Array | None) -> _Array:
    """Run a compiled gate, (M, 2 I) -> (M, I), into ``out`` or new memory.

    Raises
    ------
    ValueError
        A shape is another, an array is empty, or one is not contiguous float32.
    """
    shape = (gate_up.shape[0], gate_up.shape[-1] // 2)
    if out is None:
        out = np.empty(shape, np.float32)
    if gate_up.ndim != 2 or gate_up.shape[1] % 2 or not gate_up.size or out.shape != shape:
        raise ValueError(
            f"got gate_up {gate_up.shape}, out {out.shape}; expected (M, 2 I) and (M, I), neither 0"
        )
    try:
        gate(gate_up, out)
    except TypeError as error:
        raise ValueError(
            f"got gate_up {gate_up.dtype} {gate_up.strides}, out {out.dtype} {out.strides} (dtype, strides); expected "
            "contiguous float32 arrays"
        ) from error
    return out
