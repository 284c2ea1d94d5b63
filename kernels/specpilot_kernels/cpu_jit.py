"""How the CPU kernels are compiled, and on how many threads they run.

Kernels are plain Python compiled by numba (https://numba.readthedocs.io/). Rules that hold for all of them:

- *No fast-math.* Every floating point operation happens in the order written, so what a result depends on can
  be read off the source.
- *No threads of numba's*: OpenMP's wait for each other however long one of them has no core, and ``workqueue`` aborts
  the process when two Python threads enter it at once. :mod:`specpilot_kernels.cpu_pool` has threads that share a loop.
  torch brings threads of its own which would compete for the same cores: programs that use these kernels call
  ``torch.set_num_threads(1)``.
- *Compiled when the kernel's module is imported*, and kept on disk. numba renews a kept kernel when the file
  it stands in changes but not when a function it calls from another file does; here the folder of kept kernels
  is named after the content of all kernel sources.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

__all__ = [
    "inlined",
    "kernel",
    "max_threads",
    "num_threads",
    "set_num_threads",
    "share_threads",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# numba makes the attributes of this module when it is imported.
_config: Any = numba.config
_log = logging.getLogger(__name__)

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
    """
    global _num_threads
    most = max_threads()
    if not 1 <= num_threads <= most:
        raise ValueError(
            f"num_threads: got {num_threads}, expected 1 to {most}, the CPUs of this process; NUMBA_NUM_THREADS "
            "in the environment sets another limit"
        )
    _num_threads = num_threads


def num_threads() -> int:
    """Threads for the kernels of the calling thread, itself included."""
    return max(1, _num_threads // getattr(_calling_thread, "num_sharers", 1))


def share_threads(num_sharers: int) -> None:
    """From now on this Python thread is one of so many that call kernels at the same time: each takes its part of the
    threads, at least one."""
    _calling_thread.num_sharers = num_sharers


def kernel(*signatures: str) -> Callable[[_Function], _Function]:
    """Compile a function for the given numba signatures, now, and keep the machine code. Kernels run without Python's
    lock."""

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
