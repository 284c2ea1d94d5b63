"""Becomes the process of an engine or a job, after asking the kernel to end it with its sidecar.

Run as a file: ``python launch.py SIDECAR_PID PRIORITY COMMAND...``. PRIORITY is ``normal``, ``low`` (nice 10) or
``idle`` (only processor time that nobody else wants, and disk time likewise). A program of its own and no
``preexec_fn``: that would run Python between fork and exec of a process with threads, which may hang.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_IOPRIO_SET, _IOPRIO_IDLE = {"x86_64": 251, "aarch64": 30}, 3 << 13  # linux/ioprio.h


def main(arguments: list[str]) -> int:
    sidecar_pid, priority, command = int(arguments[0]), arguments[1], arguments[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    # Survives exec. Not SIGTERM: nobody can reach an engine without its sidecar, so there is nothing to finish.
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        print(f"prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    if os.getppid() != sidecar_pid:
        return 1  # it ended before the kernel was asked
    if priority == "low":
        os.nice(10)
    elif priority == "idle":
        os.nice(19)  # where the scheduler has no idle class for us
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        if (number := _IOPRIO_SET.get(os.uname().machine)) is not None:
            libc.syscall(number, 1, 0, _IOPRIO_IDLE)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
