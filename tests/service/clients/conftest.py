"""One live server for the clients of other people; each test skips where its client is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specpilot.engines.base import Engine
from tests.service.live_server import LiveServer, run_server


@pytest.fixture(scope="package")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with run_server(bundled_engine) as server:
        yield server
