"""Engines and clients of the service tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import specpilot
from specpilot.engines.base import Engine
from specpilot_service.app import create_app
from specpilot_service.settings import Settings


@pytest.fixture(scope="session")
def bundled_engine() -> Engine:
    """The bundled model in judge mode, where equal requests have equal answers.

    One thread: on a machine that runs other tests beside, two threads that wait for each other are slower.
    """
    if not (Path(specpilot.__file__).parent / "models" / "bundled" / "target").exists():
        pytest.skip("the bundled model is not in this checkout")
    from specpilot.models.build import build_engine

    return build_engine(mode="judge", num_threads=1)


@pytest.fixture(scope="session")
def client(bundled_engine: Engine) -> Iterator[TestClient]:
    """The app on the bundled model, called in process."""
    with TestClient(create_app(Settings(), bundled_engine)) as client:
        yield client


@pytest.fixture(scope="session")
def model(bundled_engine: Engine) -> str:
    return bundled_engine.describe().model_id
