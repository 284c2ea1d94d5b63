"""A Docker engine, a base image and docker-compose for the test of the whole stack; what is missing skips by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs import find_program, require_program
from tests.service.live_server import wait_until
from tests.source_tree import REPO

LOCAL_BASE = "local/python:bookworm"
PACKAGES = "ca-certificates,python3,python3-venv,python3-pip"


def run(command: list[str], **variables: str) -> str:
    """Standard output of a command that must succeed; run in the repository root."""
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def docker_program() -> str:
    """Debian's docker before others on the path: it has BuildKit."""
    return "/usr/bin/docker" if Path("/usr/bin/docker").exists() else require_program("docker")


def answers(host: str) -> bool:
    command = [docker_program(), "--host", host, "info"]
    return subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def docker_engine() -> Iterator[str]:
    """DOCKER_HOST of an engine that runs already, or of one that ends with the block."""
    docker_program()
    given = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if answers(given):
        yield given
        return
    daemon = require_program("dockerd")
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        host = f"unix://{folder / 'socket'}"
        words = [daemon, "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
        words += ["--pidfile", str(folder / "pid"), "--host", host, "--storage-driver", "overlay2"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: process.poll() is not None or answers(host), "dockerd answers")
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")[-4000:]
            yield host
        finally:
            process.terminate()
            process.wait(timeout=60)


def base_image(host: str, folder: Path) -> str:
    """BASE_IMAGE where it is set, else Debian with Python, made by debootstrap: no registry is needed."""
    if "BASE_IMAGE" in os.environ:
        return os.environ["BASE_IMAGE"]
    known = subprocess.run(
        [docker_program(), "--host", host, "image", "inspect", LOCAL_BASE], capture_output=True
    )
    if known.returncode == 0:
        return LOCAL_BASE
    program, root = require_program("debootstrap"), folder / "root"
    run([program, "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)])
    own = Path("/usr/local/share/ca-certificates")
    if own.is_dir():  # of the machine's own proxy, where it has one
        shutil.copytree(own, root / "usr/local/share/ca-certificates", dirs_exist_ok=True)
        run(["chroot", str(root), "update-ca-certificates"])
    run(["tar", "-C", str(root), "--numeric-owner", "-cf", str(folder / "root.tar"), "."])
    changes = ["ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    changes.append("ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt")
    words = [word for change in changes for word in ("--change", change)]
    run([docker_program(), "--host", host, "import", *words, str(folder / "root.tar"), LOCAL_BASE])
    return LOCAL_BASE


def compose(host: str, base: str, ports: dict[str, str], *words: str) -> str:
    program = find_program("docker-compose")
    assert program is not None
    # A project of its own, so that a stack somebody runs on this machine is left alone.
    return run(
        [program, "--project-name", "specpilot-test", *words], DOCKER_HOST=host, BASE_IMAGE=base, **ports
    )
