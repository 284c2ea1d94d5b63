"""A vector of 16 float32 numbers for CPU kernels.

numba compiles loops, and its compiler decides what stays in registers; sums over several rows do not. A variable of
this type is a register: two of AVX2, one of AVX-512, four of NEON. The functions work inside kernels only. Each does
the same IEEE operation on all 16 numbers, so results are the same on every machine.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

__all__ = ["LANES", "add", "fma", "load", "mul", "splat", "store", "total"]

LANES = 16

_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_cgutils: Any = cgutils


class _VectorType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name=f"float32x{LANES}")


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, frontend_type: Any) -> None:
        super().__init__(manager, frontend_type, _VECTOR)


_vector = _VectorType()


@intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    """The 16 numbers of a contiguous array from ``offset`` on, counted from its first number; not checked."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *args), align=4)

    return _vector(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Write 16 numbers to a contiguous array from ``offset`` on; not checked."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature.args[0], *args[:2]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _vector), generate


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """16 times the same number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, args[0], ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(first, undefined, zeros)

    return _vector(types.float32), generate


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once; of vectors or of float32 numbers."""
    kind = _vector if isinstance(c, _VectorType) else types.float32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        operand = args[0].type
        name = f"llvm.fma.v{LANES}f32" if operand == _VECTOR else "llvm.fma.f32"
        function_type = ir.FunctionType(operand, [operand] * 3)
        return builder.call(_cgutils.get_or_insert_function(builder.module, function_type, name), args)

    return kind(kind, kind, kind), generate


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """a + b, of vectors."""
    return _vector(_vector, _vector), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def mul(typing: Any, a: Any, b: Any) -> Any:
    """a * b, of vectors."""
    return _vector(_vector, _vector), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def total(typing: Any, value: Any) -> Any:
    """Sum of the 16 numbers: upper to lower half until one is left."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (value,) = args
        index = ir.IntType(32)
        for width in (8, 4, 2, 1):
            halves = [
                builder.shuffle_vector(
                    value, value, ir.Constant(ir.VectorType(index, width), list(range(first, first + width)))
                )
                for first in (0, width)
            ]
            value = builder.fadd(*halves)
        return builder.extract_element(value, index(0))

    return types.float32(_vector), generate


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())
