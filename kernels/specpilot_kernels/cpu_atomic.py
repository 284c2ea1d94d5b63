"""Words of memory that several threads read and write, and what else threads need to wait for each other.

Numba has none of it, so these are machine operations. They work inside kernels only; addresses are int64.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["call", "clock", "increase", "load", "pause", "replace", "store"]

_IS_X86 = platform.machine() in ("x86_64", "AMD64")
_INTEGER = ir.IntType(64)
_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic
_cgutils: Any = cgutils


@_intrinsic
def load(typing: Any, address: Any) -> Any:
    """The word at an address; what its writer wrote before it is seen too."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_place(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), generate


@_intrinsic
def store(typing: Any, address: Any, value: Any) -> Any:
    """Write a word at an address, after all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _place(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_intrinsic
def increase(typing: Any, address: Any, by: Any) -> Any:
    """Add to the word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.atomic_rmw("add", _place(builder, args[0]), args[1], "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_intrinsic
def replace(typing: Any, address: Any, before: Any, after: Any) -> Any:
    """Write ``after`` at an address if ``before`` stands there; whether it did."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(builder, args[0])
        result = builder.cmpxchg(place, args[1], args[2], "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


@_intrinsic
def call(typing: Any, function: Any, arguments: Any, part: Any) -> Any:
    """Call the function at an address with two words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_INTEGER, _INTEGER])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_intrinsic
def pause(typing: Any) -> Any:
    """Tell the core that it waits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _IS_X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(_cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


@_intrinsic
def clock(typing: Any) -> Any:
    """Clocks of a counter that never stops; 0 where programs may not read one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _IS_X86:
            return _INTEGER(0)
        kind = ir.FunctionType(_INTEGER, [])
        return builder.call(
            _cgutils.get_or_insert_function(builder.module, kind, "llvm.readcyclecounter"), []
        )

    return types.int64(), generate


def _place(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _INTEGER.as_pointer())
