"""The sidecar's process with two profiles, ``a`` and ``b``, whose engines are fake ones."""

from __future__ import annotations

import asyncio
import sys

from specpilot_service.sidecar.logs import set_up_logging
from specpilot_service.sidecar.server import serve
from specpilot_service.sidecar.settings import load_sidecar_settings
from specpilot_service.sidecar.store import StateStore
from tests.service.sidecar.fake_job import FakeKind
from tests.service.sidecar.harness import NO_KINDS, TableCatalogue, fake_profile

if __name__ == "__main__":
    settings = load_sidecar_settings([*sys.argv[1:], "--profile", "a"])
    set_up_logging(settings.log_level, settings.log_format)
    profiles = [
        fake_profile("a", "--lifetime-s", "600"),
        fake_profile("b", "--lifetime-s", "600", "--start-delay-s", "0.5"),
    ]
    kinds = {**NO_KINDS, "check": FakeKind("check")}
    asyncio.run(serve(settings, StateStore(settings.state), TableCatalogue(profiles), kinds=kinds))
