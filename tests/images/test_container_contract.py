"""What every container of the image keeps, seen by running the CPU image; the GPU images share text with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import specpilot
from tests.images.conftest import VERSION
from tests.images.docker_engine import Docker
from tests.service.live_server import wait_until

ANY_USER = "1000740000:0"
"""As OpenShift gives one: a number without a name, in group 0."""
OFFLINE = ("--network", "none", "--read-only", "--cap-drop", "ALL", "--user", ANY_USER)
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp")
SIDECAR = ("sidecar", "--state=/var/lib/specpilot", "--profile=cpu/bundled--none--plain")

pytestmark = pytest.mark.timeout(3000)


@contextmanager
def started(docker: Docker, *words: str) -> Iterator[str]:
    """A container in the background, removed with its unnamed volumes at the end."""
    container = docker("run", "--detach", *words).strip()
    try:
        yield container
    finally:
        docker("rm", "--force", "--volumes", container)


def is_settled(state: dict[str, Any]) -> bool:
    return state["Health"]["Status"] != "starting" or not state["Running"]


@pytest.fixture(scope="module")
def volume(cpu_image: tuple[Docker, str]) -> Iterator[str]:
    docker, _ = cpu_image
    name = docker("volume", "create").strip()
    yield name
    docker("volume", "rm", name)


def test_labels_user_and_health_check_are_in_the_image(cpu_image: tuple[Docker, str]) -> None:
    docker, image = cpu_image
    config = docker.inspect(image)["Config"]
    wanted = {
        "org.opencontainers.image.title": "SpecPilot (CPU)",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": "0123abc",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "io.specpilot.sm": "cpu",
    }
    assert wanted.items() <= config["Labels"].items()
    assert (config["User"], config["StopSignal"]) == ("10001:0", "SIGTERM")
    assert set(config["Volumes"]) == {"/cache", "/var/lib/specpilot"}
    assert config["Healthcheck"]["Test"][:2] == ["CMD", "specpilot-probe"]


@pytest.mark.parametrize("role", [["list-profiles", "--json"], ["sbom"], ["self-check"], ["help"]])
def test_questions_need_no_gpu_no_network_no_name_and_no_disk(
    role: list[str], cpu_image: tuple[Docker, str]
) -> None:
    docker, image = cpu_image
    said = docker("run", "--rm", *OFFLINE, image, *role)
    if role[0] == "list-profiles":
        states = {row["name"]: row["status"] for row in json.loads(said)["profiles"]}
        assert states["cpu/bundled--dflash2--chain"] == "runnable"
        assert states["h100/qwen3.8-27b--dflash2--single"] == "wrong gpu"
    if role[0] == "sbom":
        found = {item["name"]: item["version"] for item in json.loads(said)["components"]}
        assert found["specpilot"] == specpilot.__version__
        assert found["torch"].startswith("2.13.0")
        assert {"tini", "fastapi", "gradio"} <= set(found)


def test_a_profile_is_shown_and_judged_offline(cpu_image: tuple[Docker, str]) -> None:
    docker, image = cpu_image
    command = docker("run", "--rm", *OFFLINE, image, "dry-run", "h100/qwen3.8-27b--dflash2--single")
    assert "--speculative-algorithm" in command
    docker("run", "--rm", *OFFLINE, image, "check", "cpu/bundled--dflash2--chain")
    refused = docker.fails("run", "--rm", *OFFLINE, image, "check", "h100/qwen3.8-27b--dflash2--single")
    assert "this machine is cpu" in refused.stdout + refused.stderr


def test_an_image_for_a_gpu_that_is_not_here_refuses_to_start(
    cpu_image: tuple[Docker, str], tmp_path: Path
) -> None:
    """The CPU image, told that it holds kernels for sm_90a."""
    docker, image = cpu_image
    compiled = tmp_path / "compiled-sm.txt"
    compiled.write_text("sm_90a\n", encoding="ascii")
    told = ("--volume", f"{compiled}:/opt/specpilot/compiled-sm.txt:ro")
    refused = docker.fails("run", "--rm", *OFFLINE, *told, image, *SIDECAR)
    assert "sm_90a" in refused.stderr and "no GPU is visible" in refused.stderr


def test_any_user_serves_on_a_read_only_root_and_ends_on_sigterm(
    cpu_image: tuple[Docker, str], volume: str
) -> None:
    docker, image = cpu_image
    words = ("--user", ANY_USER, *HARDENED, "--health-interval", "1s", "--volume", f"{volume}:/cache")
    with started(docker, *words, image, *SIDECAR) as container:
        # The image's own health check decides: the gateway is ready.
        wait_until(lambda: is_settled(docker.inspect(container)["State"]), "the health check decides")
        state = docker.inspect(container)["State"]
        assert state["Health"]["Status"] == "healthy", (state, docker("logs", container)[-4000:])
        assert docker("exec", container, "id", "-u").strip() == ANY_USER.split(":")[0]
        kernels = docker(
            "exec", container, "find", "/cache/kernels", "-name", "*.nbc", "-user", ANY_USER.split(":")[0]
        )
        assert kernels.strip(), "machine code lies on the cache volume"
        docker("stop", "--time", "60", container)
        assert docker.inspect(container)["State"]["ExitCode"] == 0


def test_sigterm_while_a_model_loads_ends_the_container(cpu_image: tuple[Docker, str], volume: str) -> None:
    docker, image = cpu_image
    with started(
        docker, "--user", ANY_USER, *HARDENED, "--volume", f"{volume}:/cache", image, *SIDECAR
    ) as container:
        docker("stop", "--time", "60", container)
        # 137 would be the SIGKILL at the end of those 60 seconds.
        assert docker.inspect(container)["State"]["ExitCode"] in (0, 143)
