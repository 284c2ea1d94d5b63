"""A vector of 16 float32 numbers for CPU kernels.

numba compiles loops, and its compiler decides what stays in registers; sums over several rows do not. A variable of
this type is a register: two of AVX2, one of AVX-512, four of NEON. The functions work inside kernels only. Each does
the same IEEE operation on all 16 numbers, so results are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, models, register_model

from specpilot_kernels.cpu_jit import inlined

__all__ = [
    "IS_WIDE",
    "LANES",
    "add",
    "fma",
    "largest",
    "load",
    "maximum",
    "mul",
    "prefetch",
    "splat",
    "splat_at",
    "squared_length",
    "store",
    "store_one",
    "total",
]

# numba makes the attributes of this module when it is imported.
_config: Any = numba.config

LANES = 16
_features: Any = get_host_cpu_features() if _config.CPU_FEATURES is None else _config.CPU_FEATURES  # type: ignore[no-untyped-call]
IS_WIDE = "+avx512f" in _features.split(",")
"""There are 32 registers of a vector each (AVX-512); else two or four make one. Kernels are kept for each kind of
machine."""
_ZERO = np.float32(0)

_INDEX = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_PAIRS = ir.VectorType(ir.IntType(32), LANES // 2)
_BYTES = ir.VectorType(ir.IntType(8), LANES)
_cgutils: Any = cgutils
# What numba hands to kernels takes other arguments than what is written here.
_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic


class _VectorType(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"float32x{LANES}")


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend_type: Any) -> None:
        super().__init__(manager, frontend_type, _VECTOR)  # type: ignore[no-untyped-call]


_vector = _VectorType()


@_intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    """The 16 numbers of a contiguous array from ``offset`` on, counted from its first number; not checked.

    A uint16 array holds BF16 numbers as their bits, in the order 0, 8, 1, 9, ..., 7, 15; they come back widened, which
    is exact: the bits of a BF16 number are the upper half of a float32. Read as words of 32 bits, a shift and a mask
    give 16 numbers: measured 10% faster, in a product of one row as of eight, than widening 16 that lie in order.

    An int8 array's numbers lie in their order and come back as float32, which is exact too.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if array.dtype == types.int8:
            integers = builder.load(_pointer(context, builder, signature, args, _BYTES), align=1)
            wide = builder.sext(integers, ir.VectorType(ir.IntType(32), LANES))
            return builder.sitofp(wide, _VECTOR)
        kind = _VECTOR if array.dtype == types.float32 else _PAIRS
        pointer = _pointer(context, builder, signature, args, kind)
        if array.dtype == types.float32:
            return builder.load(pointer, align=4)
        words = builder.load(pointer, align=2)
        low = builder.shl(words, ir.Constant(_PAIRS, [16] * _PAIRS.count))
        high = builder.and_(words, ir.Constant(_PAIRS, [0xFFFF0000] * _PAIRS.count))
        return builder.bitcast(builder.shuffle_vector(low, high, _indices(0, LANES)), _VECTOR)

    return _vector(array, types.intp), generate


@_intrinsic
def prefetch(typing: Any, array: Any, offset: Any) -> Any:
    """Fetch what lies at ``offset`` into the cache; may point behind the array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8)
        function_type = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), _INDEX, _INDEX, _INDEX])
        function = _cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        pointer = _pointer(context, builder, signature, args, byte)
        builder.call(function, [pointer, _INDEX(0), _INDEX(3), _INDEX(1)])  # to read, into all levels, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@_intrinsic
def store(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Write 16 numbers to a contiguous array from ``offset`` on; not checked."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args, _VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _vector), generate


@_intrinsic
def store_one(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Write one number to a contiguous array at ``offset``; not checked, where ``array[offset]`` tests its sign."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args, ir.FloatType()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.float32), generate


@_intrinsic
def splat(typing: Any, value: Any) -> Any:
    """16 times the same number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _repeat(builder, args[0])

    return _vector(types.float32), generate


@_intrinsic
def splat_at(typing: Any, array: Any, offset: Any) -> Any:
    """16 times the number of a contiguous array at ``offset``; not checked."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args, ir.FloatType())
        return _repeat(builder, builder.load(pointer, align=4))

    return _vector(array, types.intp), generate


@_intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once; of vectors or of float32 numbers."""
    kind = _vector if isinstance(c, _VectorType) else types.float32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        operand = args[0].type
        name = f"llvm.fma.v{LANES}f32" if operand == _VECTOR else "llvm.fma.f32"
        function_type = ir.FunctionType(operand, [operand] * 3)
        return builder.call(_cgutils.get_or_insert_function(builder.module, function_type, name), args)

    return kind(kind, kind, kind), generate


@_intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """a + b, of vectors."""
    return _vector(_vector, _vector), lambda context, builder, signature, args: builder.fadd(*args)


@_intrinsic
def mul(typing: Any, a: Any, b: Any) -> Any:
    """a * b, of vectors or of float32 numbers."""
    kind = _vector if isinstance(a, _VectorType) else types.float32
    return kind(kind, kind), lambda context, builder, signature, args: builder.fmul(*args)


@_intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of two numbers, 16 times; b where a is no number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return _vector(_vector, _vector), generate


@_intrinsic
def total(typing: Any, value: Any) -> Any:
    """Sum of the 16 numbers: lower and upper half until one is left."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _halve(builder, args[0], builder.fadd)

    return types.float32(_vector), generate


@_intrinsic
def largest(typing: Any, value: Any) -> Any:
    """The largest of the 16 numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _halve(builder, args[0], lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))

    return types.float32(_vector), generate


@inlined
def squared_length(values: Any, first: int, count: int) -> Any:
    """Sum of squares of ``count`` numbers of a one-dimensional array: 16 sums of every 16th, then the rest singly."""
    sums = splat(_ZERO)
    end = first + count
    whole_end = end - count % LANES
    for i in range(first, whole_end, LANES):
        sums = fma(load(values, i), load(values, i), sums)
    length = total(sums)
    for i in range(whole_end, end):
        length = fma(values[i], values[i], length)
    return length


def _repeat(builder: Any, value: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, _INDEX(0))
    zeros = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def _halve(builder: Any, value: Any, join: Callable[[Any, Any], Any]) -> Any:
    for width in (8, 4, 2, 1):
        lower, upper = (builder.shuffle_vector(value, value, _indices(first, width)) for first in (0, width))
        value = join(lower, upper)
    return builder.extract_element(value, _INDEX(0))


def _pointer(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    """Pointer to a ``kind`` at an offset of an array, the first two arguments of a call."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), kind.as_pointer())


def _indices(first: int, count: int) -> Any:
    return ir.Constant(ir.VectorType(_INDEX, count), list(range(first, first + count)))
