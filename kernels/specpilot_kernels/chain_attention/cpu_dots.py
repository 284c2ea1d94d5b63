"""Products of one query with several keys at once.

Adding up the 16 numbers of a vector takes eight operations, twice as many as the products of a head of 64 channels.
Vectors of several keys are therefore added up together: halves of two vectors stand side by side in one, and each sum
still takes its numbers in the order of :func:`specpilot_kernels.cpu_vector.total`, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from specpilot_kernels.cpu_vector import IS_WIDE, LANES

__all__ = ["KEYS_AT_ONCE", "dots"]

KEYS_AT_ONCE = 16 if IS_WIDE else 4
"""As many sums as registers hold beside a query."""

_INDEX = ir.IntType(64)
_WORD = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_cgutils: Any = cgutils
_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic


@_intrinsic
def dots(
    typing: Any, query: Any, query_at: Any, dim: Any, keys: Any, keys_at: Any, out: Any, out_at: Any
) -> Any:
    """``KEYS_AT_ONCE`` numbers from ``out_at`` on: products with keys that follow each other, ``dim`` numbers each.

    ``dim`` is a multiple of 16; nothing is checked.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(signature.args[index])(context, builder, args[index]) for index in (0, 3, 5)
        ]
        query_place, keys_place, out_place = (
            builder.gep(array.data, [offset])
            for array, offset in zip(arrays, (args[1], args[4], args[6]), strict=True)
        )
        sums = [_cgutils.alloca_once(builder, _VECTOR) for _ in range(KEYS_AT_ONCE)]
        for one in sums:
            builder.store(ir.Constant(_VECTOR, [0.0] * LANES), one)
        function_type = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fma = _cgutils.get_or_insert_function(builder.module, function_type, f"llvm.fma.v{LANES}f32")
        with _cgutils.for_range_slice(builder, _INDEX(0), args[2], _INDEX(LANES), intp=_INDEX) as (i, _):
            q = _load(builder, builder.gep(query_place, [i]))
            for number, one in enumerate(sums):
                at = builder.add(i, builder.mul(args[2], _INDEX(number)))
                key = _load(builder, builder.gep(keys_place, [at]))
                builder.store(builder.call(fma, [q, key, builder.load(one)]), one)
        totals = _add_up(builder, [builder.load(one) for one in sums])
        builder.store(totals, builder.bitcast(out_place, totals.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(query, types.int64, types.int64, keys, types.int64, out, types.int64), generate


def _load(builder: Any, place: Any) -> Any:
    return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=4)


def _add_up(builder: Any, vectors: list[Any]) -> Any:
    """The total of each vector, side by side. Lower and upper half of every sum are added until one number is left."""
    num_sums, width = 1, LANES
    while width > 1:
        half = width // 2
        if len(vectors) > 1:
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
            num_sums *= 2
        else:
            pairs = [(vectors[0], vectors[0])]
        starts = [width * number for number in range(num_sums)]
        lower, upper = (
            ir.Constant(
                ir.VectorType(_WORD, num_sums * half),
                [start + first + index for start in starts for index in range(half)],
            )
            for first in (0, half)
        )
        vectors = [
            builder.fadd(builder.shuffle_vector(a, b, lower), builder.shuffle_vector(a, b, upper))
            for a, b in pairs
        ]
        width = half
    return vectors[0]
