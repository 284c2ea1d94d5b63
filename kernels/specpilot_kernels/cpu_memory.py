"""Memory that kernels reach by its address: the states of several sequences lie where each of them put its own.

A table of int64 addresses is one argument of a kernel, however many sequences run; a list of arrays would be looked
through by Python at every call. Who makes such a table keeps the arrays alive until the kernel has returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from specpilot_kernels.cpu_jit import inlined

__all__ = ["address_of", "floats_at", "integers_at"]

_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic
_carray: Any = numba.carray  # type: ignore[attr-defined]


def address_of(array: NDArray[np.float32] | NDArray[np.int64]) -> int:
    """Where a contiguous array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


@inlined
def floats_at(address: int, count: int) -> Any:
    """The ``count`` float32 numbers from an address on, as a one-dimensional array; inside kernels only."""
    return _carray(_float_pointer(address), (count,), np.float32)


@inlined
def integers_at(address: int, rows: int, columns: int) -> Any:
    """The table of int64 numbers from an address on, (rows, columns); inside kernels only."""
    return _carray(_integer_pointer(address), (rows, columns), np.int64)


def _pointer_to(kind: Any) -> Callable[[Any], Any]:
    pointer: Any = types.CPointer(kind)  # type: ignore[no-untyped-call]

    def typed(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(pointer))

        return pointer(types.int64), generate

    return _intrinsic(typed)


_float_pointer, _integer_pointer = _pointer_to(types.float32), _pointer_to(types.int64)
