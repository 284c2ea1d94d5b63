"""The inner loops of the product for 32 vector registers of 16 numbers (AVX-512).

The sums are those of :mod:`specpilot_kernels.skinny_gemm.cpu_tile`, in the same order, and so are the bits. There are
registers for 8 rows, and for the totals of the blocks before beside the sums of a block. Tiles are written as machine
operations, not as Python: numba has no arrays of vectors, and each shape would be a copy of the others.

The rows of a tile lie transposed, K times (rows), so that one pointer reaches all of them. Measured on one core of a
Sapphire Rapids machine, (8, 256) times (1408, 256): 38 multiply-adds a nanosecond with the tiles of four rows, 27 with
eight rows and a pointer for each of them, 57 with eight transposed rows, 68 with those and two panels, which share
their numbers. Nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from specpilot_kernels.cpu_vector import LANES
from specpilot_kernels.skinny_gemm.cpu_tile import K_BLOCK
from specpilot_kernels.skinny_gemm.layout import PANEL_COLUMNS

__all__ = [
    "wide_tile_1",
    "wide_tile_2",
    "wide_tile_3",
    "wide_tile_4",
    "wide_tile_5",
    "wide_tile_6",
    "wide_tile_7",
    "wide_tile_8",
]

# From so many rows on the panels behind a tile's are fetched into the cache; with fewer the machine does it in time.
_FETCH_FROM = 4

_WORD = ir.IntType(32)
_INDEX = ir.IntType(64)
_BYTE = ir.IntType(8)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_PAIRS = ir.VectorType(_WORD, LANES // 2)
_WORDS = ir.VectorType(_WORD, LANES)
_cgutils: Any = cgutils
_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic


def _new_tile(num_rows: int, num_panels: int) -> Callable[..., Any]:
    @_intrinsic
    def tile(typing: Any, x: Any, first: Any, panels: Any, panel: Any, y: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            arrays = [
                context.make_array(signature.args[index])(context, builder, args[index])
                for index in (0, 2, 4)
            ]
            num_inputs = builder.extract_value(arrays[1].shape, 1)
            num_columns = builder.extract_value(arrays[2].shape, 1)
            x_at = builder.gep(arrays[0].data, [args[1]])
            size = builder.mul(num_inputs, _INDEX(PANEL_COLUMNS))
            start = builder.mul(args[3], size)
            num_read = num_panels * (2 if num_rows >= _FETCH_FROM else 1)
            weights_at = [
                builder.gep(arrays[1].data, [builder.add(start, builder.mul(_INDEX(index), size))])
                for index in range(num_read)
            ]
            totals = _sum_up(builder, x_at, weights_at, num_inputs, num_rows, num_panels)
            column = builder.mul(args[3], _INDEX(PANEL_COLUMNS))
            for index, total in enumerate(totals):
                first_column = builder.add(column, _INDEX(index % num_panels * PANEL_COLUMNS))
                y_row = builder.add(args[5], _INDEX(index // num_panels))
                offset = builder.add(builder.mul(y_row, num_columns), first_column)
                at = builder.gep(arrays[2].data, [offset])
                _store_columns(builder, builder.load(total), at, builder.sub(num_columns, first_column))
            return context.get_dummy_value()

        return types.void(x, types.int64, panels, types.int64, y, types.int64), generate

    return tile


def _sum_up(
    builder: Any, x_at: Any, weights_at: list[Any], num_inputs: Any, num_rows: int, num_panels: int
) -> list[Any]:
    """The totals, row by row, in variables that the compiler keeps in registers."""
    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    totals, sums = (
        [_cgutils.alloca_once(builder, _VECTOR) for _ in range(num_rows * num_panels)] for _ in range(2)
    )
    multiply_add = _function(builder, _VECTOR, [_VECTOR] * 3, f"llvm.fma.v{LANES}f32")
    fetch = _function(builder, ir.VoidType(), [_BYTE.as_pointer(), _WORD, _WORD, _WORD], "llvm.prefetch.p0")
    for total in totals:
        builder.store(zero, total)
    with _cgutils.for_range_slice(builder, _INDEX(0), num_inputs, _INDEX(K_BLOCK), intp=_INDEX) as (block, _):
        for one in sums:
            builder.store(zero, one)
        end = builder.add(block, _INDEX(K_BLOCK))
        end = builder.select(builder.icmp_signed("<", end, num_inputs), end, num_inputs)
        with _cgutils.for_range_slice(builder, block, end, _INDEX(1), intp=_INDEX) as (k, _):
            places = [builder.gep(at, [builder.mul(k, _INDEX(PANEL_COLUMNS))]) for at in weights_at]
            weights = [_widened(builder, place) for place in places[:num_panels]]
            for place in places[num_panels:]:
                # To read, into all levels, data.
                builder.call(
                    fetch, [builder.bitcast(place, _BYTE.as_pointer()), _WORD(0), _WORD(3), _WORD(1)]
                )
            x_k = builder.gep(x_at, [builder.mul(k, _INDEX(num_rows))])
            for row in range(num_rows):
                number = _repeated(builder, builder.load(builder.gep(x_k, [_INDEX(row)]), align=4))
                for panel, weight in enumerate(weights):
                    one = sums[row * num_panels + panel]
                    builder.store(builder.call(multiply_add, [number, weight, builder.load(one)]), one)
        for total, one in zip(totals, sums, strict=True):
            builder.store(builder.fadd(builder.load(total), builder.load(one)), total)
    return totals


def _widened(builder: Any, place: Any) -> Any:
    """16 weights as float32; the lower halves of BF16 words are columns 0 to 7, the upper ones 8 to 15.

    int8 weights lie in their order.
    """
    if place.type.pointee == ir.FloatType():
        return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=4)
    if place.type.pointee == _BYTE:
        integers = builder.load(builder.bitcast(place, ir.VectorType(_BYTE, LANES).as_pointer()), align=1)
        return builder.sitofp(builder.sext(integers, _WORDS), _VECTOR)
    words = builder.load(builder.bitcast(place, _PAIRS.as_pointer()), align=2)
    half = LANES // 2
    # A load that repeats itself and one shuffle of bytes is what AVX-512 makes of this.
    both = builder.shuffle_vector(words, words, ir.Constant(_WORDS, [*range(half), *range(half)]))
    both = builder.shl(both, ir.Constant(_WORDS, [16] * half + [0] * half))
    return builder.bitcast(builder.and_(both, ir.Constant(_WORDS, [0xFFFF0000] * LANES)), _VECTOR)


def _repeated(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, _WORD(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_WORDS, [0] * LANES))


def _store_columns(builder: Any, value: Any, at: Any, num_left: Any) -> None:
    """The first ``num_left`` of 16 columns, none if it is 0 or less: the last panels of a product may be empty."""
    most, least = _INDEX(LANES), _INDEX(0)
    num_left = builder.select(builder.icmp_signed("<", num_left, most), num_left, most)
    num_left = builder.select(builder.icmp_signed(">", num_left, least), num_left, least)
    counts = ir.VectorType(_WORD, LANES)
    undefined = ir.Constant(counts, ir.Undefined)
    first = builder.insert_element(undefined, builder.trunc(num_left, _WORD), _WORD(0))
    limit = builder.shuffle_vector(first, undefined, ir.Constant(counts, [0] * LANES))
    mask = builder.icmp_signed("<", ir.Constant(counts, list(range(LANES))), limit)
    pointer = _VECTOR.as_pointer()
    kinds = [_VECTOR, pointer, _WORD, ir.VectorType(ir.IntType(1), LANES)]
    store = _function(builder, ir.VoidType(), kinds, f"llvm.masked.store.v{LANES}f32.p0")
    builder.call(store, [value, builder.bitcast(at, pointer), _WORD(4), mask])


def _function(builder: Any, result: Any, arguments: list[Any], name: str) -> Any:
    return _cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


# ``tile(x, first, panels, panel, y, row)`` writes the tile at ``row`` and ``panel``. ``x`` is one-dimensional, its rows
# transposed from ``first`` on; columns behind the last one of y are left out. With fewer than 8 sums an addition waits
# for the one before; a single row waits for memory. Numbers of rows have a tile each: 7 rows as 4, 2 and 1 took longer
# than 8 (measured, Zen 4: 72 us against 63 us for (7 or 8, 256) x (1408, 256)).
wide_tile_8, wide_tile_7, wide_tile_6, wide_tile_5, wide_tile_4 = (
    _new_tile(num_rows, 2) for num_rows in (8, 7, 6, 5, 4)
)
wide_tile_3, wide_tile_2, wide_tile_1 = (_new_tile(num_rows, 4) for num_rows in (3, 2, 1))
