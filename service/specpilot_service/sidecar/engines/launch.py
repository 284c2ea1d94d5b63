"""Becomes the engine's process, after asking the kernel to end it with its sidecar.

Run as a file: ``python launch.py SIDECAR_PID COMMAND...``. A program of its own and no ``preexec_fn``: that would run
Python between fork and exec of a process with threads, which may hang.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    sidecar_pid, command = int(arguments[0]), arguments[1:]
    # Survives exec. Not SIGTERM: nobody can reach an engine without its sidecar, so there is nothing to finish.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        print(f"prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    if os.getppid() != sidecar_pid:
        return 1  # it ended before the kernel was asked
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
