"""Helper threads that take parts of a kernel's loop while the thread that called it takes them too.

A product of a few rows lasts tens of microseconds, too short to start threads for and too long to leave a core idle.
Here helpers watch a word of memory for some hundred microseconds after a loop, and sleep when none follows; who has
work writes it there and begins. Parts are taken one by one, so a helper that does not come, because the machine gives
its core to somebody else, costs nothing: the caller takes all parts. It waits for those alone that a helper has begun;
an OpenMP loop waits for every thread to arrive. Where the machine has no core to spare, a helper that is stuck in the
middle of a part is waited for, and what it spins is taken from its caller: there, for a while, longer each time,
nothing is shared.

One loop runs at a time; a second caller meanwhile runs its own alone. What a part computes must not depend on who
takes it or on the number of parts. A forked process has none of its parent's threads: it starts helpers of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from specpilot_kernels import cpu_jit
from specpilot_kernels.cpu_atomic import call, clock, increase, load, pause, replace, store
from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_memory import address_of
from specpilot_kernels.cpu_scarcity import Rest

__all__ = ["MOST_PARTS", "SHARE_FROM", "job_of", "num_helped", "pool_for", "run_parts"]

SHARE_FROM = 2**17
"""Multiply-adds from which a loop is shared: 3 us of one core, where handing over takes 0.3 us."""
MOST_PARTS = 2**16 - 1
"""Of a loop."""

# Places of words of 8 bytes; what different threads write lies in cache lines of its own.
_TICKET, _NUM_DONE, _OWNER, _JOB, _NUM_HELPED, _STUCK, _NUM_WORDS = 0, 8, 16, 24, 32, 40, 48
# Pauses of a helper without work before it sleeps: 17 ns each on Zen 4, 40 ns on Sapphire Rapids.
_MOST_PAUSES = 16_384
# Clocks that a caller waits, beside four times what a part of its own took, before it thinks that a helper is stuck.
_MOST_CLOCKS = 300_000

_INTEGER = ir.IntType(64)
_intrinsic: Callable[[Any], Callable[..., Any]] = intrinsic
_cgutils: Any = cgutils


@_intrinsic
def job_of(typing: Any, function: Any, arguments: Any) -> Any:
    """Addresses of a function of a part's number and more arguments, compiled by :func:`cpu_jit.inlined`, and of these
    arguments, a tuple; for :func:`run_parts`, in the same kernel."""
    # The kernel names the function itself: numba keeps no machine code of one that is handed it as an argument.
    kinds = types.int64, *arguments.types
    typing.resolve_function_type(function, kinds, {})

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        compiled = function.dispatcher.get_compile_result(types.void(*kinds))
        context.active_code_library.add_linking_library(compiled.library)
        # What the pool calls: takes the arguments from where they lie.
        kind = ir.FunctionType(ir.VoidType(), [_INTEGER, _INTEGER])
        name = builder.module.get_unique_name("part_of_loop")
        entry = ir.Function(builder.module, kind, name)
        entry.linkage = "internal"
        inner = ir.IRBuilder(entry.append_basic_block())
        place = inner.inttoptr(entry.args[0], args[1].type.as_pointer())
        values = _cgutils.unpack_tuple(inner, inner.load(place))
        context.call_internal_no_propagate(
            inner, compiled.fndesc, types.void(*kinds), [entry.args[1], *values]
        )
        inner.ret_void()
        addresses = entry, _cgutils.alloca_once_value(builder, args[1])
        return context.make_tuple(
            builder, signature.return_type, [builder.ptrtoint(address, _INTEGER) for address in addresses]
        )

    return types.Tuple((types.int64, types.int64))(function, arguments), generate  # type: ignore[no-untyped-call]


@inlined
def _take_parts(pool: int, is_helper: bool) -> int:
    """Run parts until none is left; how many there were.

    A ticket holds the number of its loop (upper 32 bits) and behind which part those end that are left, and where they
    begin (16 bits each). While it stands there unchanged, so does the job beside it: the next loop is written when all
    parts are done. The caller takes the first part that is left and helpers the last one, so that in the next step
    everybody comes to about the same weights, which its cache may still hold.
    """
    num_taken = 0
    while True:
        ticket = load(pool + 8 * _TICKET)
        begin, end = ticket & MOST_PARTS, (ticket >> 16) & MOST_PARTS
        if begin >= end:
            return num_taken
        function, arguments = load(pool + 8 * _JOB), load(pool + 8 * _JOB + 8)
        if replace(pool + 8 * _TICKET, ticket, ticket - 2**16 if is_helper else ticket + 1):
            call(function, arguments, end - 1 if is_helper else begin)
            increase(pool + 8 * _NUM_DONE, 1)
            num_taken += 1


@inlined
def _share_parts(pool: int, job: Any, num_parts: int) -> bool:
    """:func:`run_parts`, but where the parts are not shared nothing is done."""
    if pool == 0 or not 1 < num_parts <= MOST_PARTS or not replace(pool + 8 * _OWNER, 0, 1):
        return False
    store(pool + 8 * _JOB, job[0])
    store(pool + 8 * _JOB + 8, job[1])
    store(pool + 8 * _NUM_DONE, 0)
    number = ((load(pool + 8 * _TICKET) >> 32) + 1) & 0x7FFFFFFF
    store(pool + 8 * _TICKET, (number << 32) | (num_parts << 16))
    begin = clock()
    num_taken = _take_parts(pool, False)
    end = clock()
    limit = _MOST_CLOCKS + 4 * (end - begin) // max(1, num_taken)
    while load(pool + 8 * _NUM_DONE) < num_parts:
        pause()
    now = clock()
    # Clocks lost in such waits, and when that was said.
    store(pool + 8 * _STUCK, load(pool + 8 * _STUCK) + (now - end if now - end > limit else 0))
    store(pool + 8 * _STUCK + 8, now)
    store(pool + 8 * _OWNER, 0)
    return True


@inlined
def run_parts(pool: int, job: Any, num_parts: int) -> bool:
    """Run parts 0 to ``num_parts - 1`` of a loop, with the helpers' help where that can be had; inside kernels only.

    Parameters
    ----------
    pool
        From :func:`pool_for`.
    job
        From :func:`job_of`. What its arguments point to must live until this returns.
    num_parts
        Shared if they are 2 to ``MOST_PARTS``.

    Returns
    -------
    bool
        Whether they were shared. False: the pool is 0, there are too few or too many parts, or another thread's loop
        runs; this thread has run them one after the other.
    """
    is_shared = _share_parts(pool, job, num_parts)
    if not is_shared:
        for part in range(num_parts):
            call(job[0], job[1], part)
    return is_shared


@kernel("void(i8)")
def _help(pool: int) -> None:
    """Take parts as they come, until none has come for a while."""
    num_pauses = 0
    while num_pauses < _MOST_PAUSES:
        num_taken = _take_parts(pool, True)
        if num_taken == 0:
            pause()
            num_pauses += 1
        else:
            increase(pool + 8 * _NUM_HELPED, num_taken)
            num_pauses = 0


_words: NDArray[np.int64] = np.zeros(_NUM_WORDS + 8, np.int64)
# From the beginning of a cache line on.
_POOL = address_of(_words) + -address_of(_words) % 64
_pool = _words[(_POOL - address_of(_words)) // 8 :]
_starting = threading.Lock()


class _Helper:
    """A thread that sleeps while there is nothing to do."""

    def __init__(self, index: int) -> None:
        self.is_asleep = False
        self._woken = threading.Event()
        threading.Thread(target=self._work, name=f"kernel-helper-{index}", daemon=True).start()

    def wake(self) -> None:
        self.is_asleep = False
        self._woken.set()

    def _work(self) -> None:
        while True:
            _help(_POOL)
            self._woken.clear()
            # A call that comes between these two lines finds no help, which changes nothing but its time.
            self.is_asleep = True
            self._woken.wait()


_helpers: list[_Helper] = []


def _start_helpers(count: int) -> None:
    """Let there be at least ``count`` helpers; they live as long as the process."""
    with _starting:
        while len(_helpers) < count:
            _helpers.append(_Helper(len(_helpers)))


def _start_anew() -> None:
    """In a process that was forked: what threads of its parent held or were in the middle of is nobody's here."""
    global _starting
    _starting = threading.Lock()
    _helpers.clear()
    _pool[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


_rest = Rest(lambda: _pool[_STUCK : _STUCK + 2].tolist())


def num_helped() -> int:
    """Parts that helpers have taken since the process began."""
    return int(_pool[_NUM_HELPED])


def pool_for(multiply_adds: int) -> int:
    """The pool to hand to a kernel for so much work, 0: alone. Asked right before the kernel is called, on the thread
    that calls it; wakes helpers that sleep."""
    if multiply_adds < SHARE_FROM:
        return 0
    count = cpu_jit.num_threads() - 1
    if count < 1 or _rest.is_on():
        return 0
    if len(_helpers) < count:
        _start_helpers(count)
    for helper in _helpers[:count]:
        if helper.is_asleep:
            helper.wake()
    return _POOL
