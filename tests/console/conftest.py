"""A sidecar with engines that are programs of the test, and sessions on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specpilot_console.client import ConsoleClient, Session
from tests.service.sidecar.fake_job import FakeKind
from tests.service.sidecar.harness import NO_KINDS, LiveSidecar, fake_profile, run_sidecar


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[LiveSidecar]:
    profiles = [
        fake_profile("fast"),
        fake_profile("slow-start", "--start-delay-s", "1.5"),
        fake_profile("broken", "--refuse-start", budget_s=2.0),
    ]
    # Gates have nothing to say here; the check of the audits tab is a program of the tests.
    parts = {"kinds": NO_KINDS | {"audit": FakeKind("audit")}}
    with run_sidecar(tmp_path / "state", profiles, parts=parts, gates=("ceiling",), max_restarts=0) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def client(sidecar: LiveSidecar) -> Iterator[ConsoleClient]:
    client = ConsoleClient(sidecar.admin_url, sidecar.url)
    yield client
    client.close()


@pytest.fixture
def admin(client: ConsoleClient, sidecar: LiveSidecar) -> Session:
    return client.session(key_file(sidecar).read_text().strip())


def key_file(sidecar: LiveSidecar) -> Path:
    return sidecar.sidecar.settings.state / "admin.key"
