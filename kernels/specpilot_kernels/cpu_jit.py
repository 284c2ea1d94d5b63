"""How the CPU kernels are compiled, and on how many threads they run.

Kernels are plain Python compiled by numba (https://numba.readthedocs.io/). Rules that hold for all of them:

- *No fast-math.* Every floating point operation happens in the order written, so what a result depends on can
  be read off the source.
- *OpenMP threads*: numba's ``omp`` layer, for ``workqueue`` takes 50 us to 150 us to start two threads (measured on 2
  cores) and aborts the process when two Python threads enter it at once. torch brings an OpenMP runtime of its own
  whose threads would compete for the same cores: programs that use these kernels call ``torch.set_num_threads(1)``.
- *Compiled when the kernel's module is imported*, and kept on disk. numba renews a kept kernel when the file
  it stands in changes but not when a function it calls from another file does; here the folder of kept kernels
  is named after the content of all kernel sources.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

__all__ = [
    "PARALLEL_FROM",
    "inlined",
    "kernel",
    "max_threads",
    "num_threads",
    "set_num_threads",
    "share_of_threads",
    "share_threads",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# numba makes the attributes of this module when it is imported.
_config: Any = numba.config
_log = logging.getLogger(__name__)

PARALLEL_FROM = 2**24
"""Operations from which OpenMP threads, which sleep between kernels, pay: waking one takes 40 us on two idle cores and
up to 4 ms where the machine shares its second one (both measured)."""

_num_threads = 1
_calling_thread = threading.local()


def max_threads() -> int:
    """Most threads a kernel may use: ``NUMBA_NUM_THREADS`` where set, else the CPUs of this process and, where it runs
    under a quota (a container's ``--cpus``), no more than that is worth: who spends it early is stopped for the rest
    of a period."""
    most = int(_config.NUMBA_NUM_THREADS)
    if "NUMBA_NUM_THREADS" in os.environ:
        return most
    return max(1, min(most, int(_quota_cpus(Path("/sys/fs/cgroup")))))


@functools.cache
def _quota_cpus(groups: Path) -> float:
    """CPUs that the control group may use at a time, of version 2 or 1; as good as infinity without a limit."""
    try:
        if (groups / "cpu.max").exists():
            quota, period = (groups / "cpu.max").read_text().split()
        else:
            quota, period = ((groups / f"cpu/cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else sys.maxsize
    except (OSError, ValueError):
        return sys.maxsize


def set_num_threads(num_threads: int) -> None:
    """Let kernels use this many threads from now on, in the whole process; before the first call it is 1.

    Raises
    ------
    ValueError
        Not between 1 and what numba allows: the CPUs of this process, or ``NUMBA_NUM_THREADS`` where set.
    RuntimeError
        More than one thread is wanted and the OpenMP runtime (Debian: package ``libgomp1``) is missing.
    """
    global _num_threads
    most = max_threads()
    if not 1 <= num_threads <= most:
        raise ValueError(
            f"num_threads: got {num_threads}, expected 1 to {most}, the CPUs of this process; NUMBA_NUM_THREADS "
            "in the environment sets another limit"
        )
    if num_threads > 1:
        _require_openmp()
    _num_threads = num_threads


def num_threads(multiply_adds: int | None = None) -> int:
    """Threads to hand to a parallel kernel; asked right before it is called, on the thread that calls it.

    For work of fewer ``multiply_adds`` than pay for starting threads, 1.
    """
    if multiply_adds is not None and multiply_adds < PARALLEL_FROM:
        return 1
    wanted = share_of_threads()
    if getattr(_calling_thread, "num_threads", 0) != wanted:
        # numba keeps, for every Python thread, how many threads it starts.
        numba.set_num_threads(wanted)
        _calling_thread.num_threads = wanted
    return wanted


def share_of_threads() -> int:
    """Threads for the kernels of the calling thread, itself included."""
    return max(1, _num_threads // getattr(_calling_thread, "num_sharers", 1))


def share_threads(num_sharers: int) -> None:
    """From now on this Python thread is one of so many that call kernels at the same time: each takes its part of the
    threads, at least one."""
    _calling_thread.num_sharers = num_sharers


def kernel(*signatures: str, parallel: bool = False) -> Callable[[_Function], _Function]:
    """Compile a function for the given numba signatures, now, and keep the machine code.

    A ``parallel`` function gets :func:`num_threads` as its last argument, splits its work into that many parts
    with ``prange`` and must give the same result for every number of parts. For one part it must not come to its
    ``prange``, which wakes all threads however few parts there are: a forward of one row, with eight such calls,
    took 1.16 ms in place of 0.66 ms (measured, 2 cores of a shared Zen 4 machine, the least of many), and tens of
    milliseconds where other work kept the second core. Kernels run without Python's lock.
    """

    def compile_now(function: _Function) -> _Function:
        folder = _kept_kernels()
        users_folder = _config.CACHE_DIR
        # numba reads the setting while it compiles; other users of numba in this process keep theirs.
        _config.CACHE_DIR = folder or ""
        try:
            compile_kernel: Any = numba.njit(
                list(signatures),
                nogil=True,
                error_model="numpy",
                parallel=parallel,
                cache=folder is not None,
            )
            compiled: _Function = compile_kernel(function)
        finally:
            _config.CACHE_DIR = users_folder
        return compiled

    return compile_now


def inlined(function: _Function) -> _Function:
    """Let kernels call a function; it is compiled as a part of each of them."""
    compile_inlined: Any = numba.njit
    options = {
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
    }  # Python never calls it; quicker to compile
    compiled: _Function = compile_inlined(nogil=True, error_model="numpy", **options)(function)
    return compiled


@functools.cache
def _kept_kernels() -> str | None:
    """Folder of machine code made from exactly these sources; None, with a warning, if it cannot be written."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    base = Path(_config.CACHE_DIR or package / "__pycache__")
    folder = base / f"specpilot-kernels-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = str(error)
    else:
        if os.access(folder, os.W_OK):
            return str(folder)
        reason = f"{folder} is not writable"
    _log.warning(
        "CPU kernels are compiled anew at every start (%s); set NUMBA_CACHE_DIR to keep them", reason
    )
    return None


def _require_openmp() -> None:
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError as error:
        raise RuntimeError(
            f"threads: numba's OpenMP layer does not load ({error}); install libgomp1, or use 1 thread"
        ) from error


# Read when numba starts its first threads. "default" means that nobody chose.
if _config.THREADING_LAYER == "default":
    _config.THREADING_LAYER = "omp"
