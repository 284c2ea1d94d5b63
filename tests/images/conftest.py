"""The CPU image, built once for all tests that run it, and the engine of the service tests for the programs' own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.images.docker_engine import (
    Docker,
    base_image,
    build_context,
    docker_engine,
    require_indexes,
    run,
)
from tests.programs import require_program
from tests.service.conftest import bundled_engine as bundled_engine

VERSION = "under-test"


@dataclass(frozen=True)
class Compose:
    """docker-compose on a copy of the repository, in a project of its own: a stack somebody runs is left alone."""

    docker: Docker
    folder: Path
    base: str

    def __call__(self, *words: str, **variables: str) -> str:
        command = [require_program("docker-compose"), "--project-name", "specpilot-test", *words]
        given = {"BASE_IMAGE": self.base, "VERSION": VERSION, "DOCKER_HOST": self.docker.host, **variables}
        return run(command, self.folder, **given)


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """With the CPU image built."""
    if os.environ.get("IMAGE_TESTS") == "0":
        pytest.skip("IMAGE_TESTS=0 leaves out what builds images")
    require_program("docker-compose")
    require_indexes()
    with docker_engine() as docker:
        base = base_image(docker)
        built = Compose(docker, build_context(docker, base, tmp_path_factory.mktemp("clone")), base)
        built("build", REVISION="0123abc")
        yield built
        docker("image", "rm", f"specpilot:{VERSION}-cpu")


@pytest.fixture(scope="session")
def cpu_image(compose: Compose) -> tuple[Docker, str]:
    """The engine that holds the image, and its name."""
    return compose.docker, f"specpilot:{VERSION}-cpu"
