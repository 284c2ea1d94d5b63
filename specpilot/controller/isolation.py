"""Who may read and change what: users, private folders, and the controller's own copy of its code.

Started as root, the controller works under a user of its own and keeps everything it must protect in folders only that
user can enter. Systems run under two further users, one an arm, so that a candidate can neither read the controller's
files nor touch the control. Without root none of this can be enforced: that is an error, unless the operator says that
an unprotected controller will do, and then every record says "not isolated".
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

import specpilot
import specpilot_kernels
from specpilot.controller.slots.base import Arm
from specpilot.errors import ConfigError, Unsupported

__all__ = ["Users", "copy_code", "drop_to", "find_faults", "hash_code", "make_private"]

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_DUMPABLE = 4
_CODE_SUFFIXES = {".py", ".cu", ".cuh", ".json", ".jsonl", ".safetensors", ".w12", ".so"}


@dataclass(frozen=True)
class Users:
    """Numbers of users; names are not needed. ``agents`` may call the controller.

    Raises
    ------
    ConfigError
        Two parts share a user, or one is root.
    """

    controller: int
    candidate: int
    control: int
    agents: tuple[int, ...]

    def __post_init__(self) -> None:
        own = (self.controller, self.candidate, self.control)
        if len({*own, *self.agents}) != len(own) + len(self.agents) or 0 in own:
            raise ConfigError(
                f"users: got {asdict(self)}, expected different users, and root for none of the first three"
            )

    def of_arm(self, arm: Arm) -> int:
        return self.candidate if arm == "candidate" else self.control


def find_faults(users: Users | None) -> list[str]:
    """Why nothing could be protected here; empty if it can."""
    faults = []
    if users is None:
        faults.append("no users are named")
    if os.geteuid() != 0:
        faults.append(
            f"the controller runs as user {os.geteuid()}, and only root can give systems other users"
        )
    return faults


def make_private(folder: Path, user: int) -> None:
    """A folder that only ``user`` can enter; it must not exist, or be just that already.

    Raises
    ------
    ConfigError
        It belongs to somebody else, is a link, or others may enter it.
    """
    if not folder.exists() and not folder.is_symlink():
        folder.mkdir(mode=0o700, parents=True)
        os.chown(folder, user, user)
    found = folder.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or mode & 0o077:
        raise ConfigError(
            f"{folder}: got owner {found.st_uid} and mode {mode:o}, expected a folder of user {user} with mode 700"
        )


def copy_code(folder: Path, user: int) -> str:
    """Copy the packages the controller runs from, for ``user`` to read and nobody to write; returns the hash."""
    for package in (specpilot, specpilot_kernels):
        source = (
            Path(str(package.__file__)).parent if package.__file__ else Path(next(iter(package.__path__)))
        )
        for path in _code_files(source):
            copy = folder / source.name / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for path in [*folder.rglob("*"), folder]:
        os.chown(path, user, user)
        path.chmod(0o500 if path.is_dir() else 0o400)
    return hash_code(folder)


def hash_code(folder: Path) -> str:
    """sha256 over names and contents of all code files."""
    digest = hashlib.sha256()
    for path in _code_files(folder):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder)} {content}\n".encode())
    return digest.hexdigest()


def drop_to(user: int) -> None:
    """Become ``user`` for good, with no way to gain rights and no way for others of that user to look inside.

    Raises
    ------
    Unsupported
        The kernel did not do it.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.umask(0o077)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise Unsupported(f"isolation: prctl {option} failed: {os.strerror(ctypes.get_errno())}")
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise Unsupported("isolation: root could be regained; the controller does not run like this")


def _code_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in _CODE_SUFFIXES and not path.is_symlink()
    )
