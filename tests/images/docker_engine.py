"""A Docker engine, a base image and the build context for tests of whole images; what is missing skips by name."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.programs import require_program
from tests.service.live_server import wait_until
from tests.source_tree import REPO

LOCAL_BASE = "local/python:bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"
TORCH = "torch==2.13.0+cpu"
"""The local version keeps the default build, and its gigabytes of CUDA, out."""
INDEXES = (("deb.debian.org", 80), ("pypi.org", 443))
DISK_BYTES = 10 * 2**30
"""Base, build stage, image, and the builder's layers between them; 6 GB were seen."""


def run(command: list[str], folder: Path = REPO, **variables: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Docker:
    """The client of one engine."""

    host: str

    @property
    def words(self) -> list[str]:
        # Debian's docker before others on the path: it belongs to Debian's engine.
        program = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else require_program("docker")
        return [program, "--host", self.host]

    def __call__(self, *words: str) -> str:
        return run([*self.words, *words])

    def fails(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command that must fail."""
        done = subprocess.run([*self.words, *words], capture_output=True, text=True)
        assert done.returncode != 0, done.stdout
        return done

    def answers(self) -> bool:
        return subprocess.run([*self.words, "info"], capture_output=True).returncode == 0

    def inspect(self, name: str) -> dict[str, Any]:
        (found,) = json.loads(self("inspect", name))
        assert isinstance(found, dict)
        return found


def require_indexes() -> None:
    """Images are built from Debian's and PyPI's packages."""
    for host, port in INDEXES:
        try:
            socket.create_connection((host, port), timeout=10).close()
        except OSError as error:
            pytest.skip(f"{host}:{port} cannot be reached: {error}")


@contextmanager
def docker_engine() -> Iterator[Docker]:
    """An engine that runs already, or one that ends with the block."""
    given = Docker(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if given.answers():
        yield given
        return
    daemon = require_program("dockerd")
    require_program("iptables")
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < DISK_BYTES:
            pytest.skip(f"less than {DISK_BYTES >> 30} GiB free for images")
        engine = Docker(f"unix://{folder / 'socket'}")
        words = [daemon, "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
        words += ["--pidfile", str(folder / "pid"), "--host", engine.host, "--storage-driver", "overlay2"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: process.poll() is not None or engine.answers(), "dockerd answers")
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")[-4000:]
            yield engine
        finally:
            process.terminate()
            process.wait(timeout=60)


def base_image(docker: Docker) -> str:
    """BASE_IMAGE where it is set, else Debian with Python, made by mmdebstrap: no registry is needed."""
    if "BASE_IMAGE" in os.environ:
        return os.environ["BASE_IMAGE"]
    if docker("image", "ls", "--quiet", LOCAL_BASE).strip():
        return LOCAL_BASE
    make = [require_program("mmdebstrap"), "--quiet", "--variant=apt", f"--include={PACKAGES}"]
    own = Path("/usr/local/share/ca-certificates")
    if own.is_dir():  # of the machine's own proxy, where it has one
        make.append(f"--customize-hook=copy-in {own} /usr/local/share")
        make.append('--customize-hook=chroot "$1" update-ca-certificates')
    take = [*docker.words, "import"]
    take += ["--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    take += ["--change", "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt"]
    with subprocess.Popen([*make, "bookworm", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as maker:
        taken = subprocess.run([*take, "-", LOCAL_BASE], stdin=maker.stdout, capture_output=True, text=True)
        assert maker.stderr is not None
        complaints = maker.stderr.read().decode()
    assert maker.returncode == 0, complaints[-4000:]
    assert taken.returncode == 0, taken.stderr
    return LOCAL_BASE


def build_context(docker: Docker, base: str, folder: Path) -> Path:
    """The repository as a fresh clone has it, with a CPU wheel of torch for the base's Python in ``.wheels``."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    for name in listed.split("\0"):
        if name and (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, folder / name)
    if "TORCH_INDEX_URL" in os.environ:
        return folder
    show = "import sys; print('%d%d' % sys.version_info[:2])"
    version = docker("run", "--rm", "--network", "none", base, "python3", "-c", show).strip()
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", version, "--platform", "manylinux_2_28_x86_64"]
    done = subprocess.run([*words, "--dest", str(folder / ".wheels"), TORCH], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no wheel of {TORCH} for Python {version}; TORCH_INDEX_URL names an index that has one")
    return folder
