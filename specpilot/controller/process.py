"""Starts the controller: protects what must be protected, gives its rights up, and serves.

As root: folders, the code copy and the spawner are made, then this process becomes the controller's user and replaces
itself by a Python in isolated mode (no PYTHON* variable, no user site, no current folder) that imports from the copy.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

from specpilot.controller.config import ControllerConfig
from specpilot.controller.isolation import copy_code, drop_to, find_faults, hash_code, make_private
from specpilot.controller.spawner import Spawner, start_spawner
from specpilot.errors import SpecPilotError, Unsupported

__all__ = ["main", "start"]

_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from specpilot.controller.process import main; main(sys.argv[2])"


def start(config: ControllerConfig, *, is_unprotected_accepted: bool = False) -> None:
    """Serve until ended.

    Raises
    ------
    Unsupported
        Nothing could be protected here, and ``is_unprotected_accepted`` was not given.
    """
    faults = [*find_faults(config.users), *_environment_faults()]
    if faults and not is_unprotected_accepted:
        raise Unsupported(
            f"isolation: {'; '.join(faults)}. Start the controller as root with users in its configuration, or in a "
            "container of its own; --allow-unprotected runs it anyway and marks every record 'not isolated'"
        )
    if config.users is None:
        for folder in (config.private, config.public, config.trees):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _serve(config, None)
        return
    if os.geteuid() != 0:
        raise Unsupported(
            "isolation: only root can give systems users of their own; leave users and launch out"
        )
    user = config.users.controller
    _check_python(user)
    make_private(config.private, user)
    code = config.private / "code"
    if code.exists():
        shutil.rmtree(code)
    digest = copy_code(code, user)
    for folder in (config.public, config.trees):
        folder.mkdir(mode=0o755, exist_ok=True)
        os.chown(folder, user, user)
    for name in ("development", "sealed"):
        if given := getattr(config, name):
            _take_requests(Path(given), config.private / f"{name}.jsonl", user)
    spawner = start_spawner(config.users)
    handle = spawner.detach()
    os.set_inheritable(handle, True)
    drop_to(user)
    message = json.dumps({"config": config.to_json(), "spawner": handle, "code": digest})
    environment = {
        "HOME": str(config.private),
        "PATH": os.environ.get("PATH", ""),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment["NUMBA_CACHE_DIR"] = str(config.private / "numba")
    os.chdir(config.private)
    os.execve(sys.executable, [sys.executable, "-I", "-c", _BOOT, str(code), message], environment)


def main(message: str) -> None:
    """The other side of ``execve``; private to :func:`start`."""
    from specpilot.profiles.records import read_record

    data = json.loads(message)
    config = read_record(ControllerConfig, data["config"], "controller")
    code = config.private / "code"
    if hash_code(code) != data["code"]:
        raise Unsupported(f"isolation: {code} changed while the controller started")
    try:
        _serve(config, Spawner(socket.socket(fileno=data["spawner"])))
    except SpecPilotError as error:
        # As the command it was says it.
        print(f"specpilot: {error}", file=sys.stderr)
        sys.exit(1)


def _serve(config: ControllerConfig, spawner: Spawner | None) -> None:
    # Loaded here: it brings the engine that scores.
    from specpilot.controller.assembly import serve

    serve(config, spawner)


def _take_requests(source: Path, target: Path, user: int) -> None:
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    os.chown(target, user, user)
    target.chmod(0o400)


def _check_python(user: int) -> None:
    """A Python below a private home cannot be run by anybody else, however open its own folder is."""
    try:
        command = [sys.executable, "-I", "-c", "import torch"]
        subprocess.run(
            command, user=user, group=user, extra_groups=[], env={}, check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode(errors="replace").strip() if hasattr(error, "stderr") else ""
        why = said.rpartition("\n")[2] or str(error)
        if closed := _closed_folder(Path(sys.executable)):
            why = f"{closed} lets only its owner in"
        raise Unsupported(
            f"isolation: user {user} cannot run {sys.executable}: {why}; install Python and SpecPilot's packages where "
            "every user can read them, /opt for instance"
        ) from None


def _closed_folder(executable: Path) -> Path | None:
    """The first folder on the way to a program, through every link, that other users cannot enter."""
    for place in (executable, executable.resolve(), Path(sys.prefix), Path(sys.base_prefix)):
        for folder in reversed(place.parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return folder
    return None


def _environment_faults() -> list[str]:
    """Packages that somebody else than root may change would run inside the controller."""
    found = []
    for place in {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("stdlib"),
        str(Path(sys.executable).resolve()),
    }:
        status = Path(place).stat()
        if status.st_uid != 0 or stat.S_IMODE(status.st_mode) & 0o022:
            found.append(f"{place} can be changed by others than root")
    return found
