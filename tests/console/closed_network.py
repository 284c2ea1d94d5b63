"""A network namespace with loopback alone, for the calling thread and what it starts from then on."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

__all__ = ["closed_network"]

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40  # linux/sockios.h, linux/if.h


@contextlib.contextmanager
def closed_network() -> Iterator[str]:
    """Yields "" inside, or why this user may not make one; then nothing has changed."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            yield f"a network namespace cannot be made here: {os.strerror(ctypes.get_errno())}"
            return
        try:
            with socket.socket() as probe:
                up = struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING)
                fcntl.ioctl(probe, _SIOCSIFFLAGS, up)
            yield ""
        finally:
            if libc.setns(before, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "the network of before does not come back")
    finally:
        os.close(before)
