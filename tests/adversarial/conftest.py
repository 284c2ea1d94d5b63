"""One engine and its decoded answers for all cheats."""

from __future__ import annotations

import pytest

from specpilot.controller.selftest.trials import Sets, make_sets
from specpilot.controller.selftest.truth import Truth
from specpilot.models.build import build_engine


@pytest.fixture(scope="session")
def truth() -> Truth:
    return Truth(build_engine(None, mode="judge", num_threads=1))


@pytest.fixture(scope="session")
def sets(truth: Truth) -> Sets:
    return make_sets(truth)
