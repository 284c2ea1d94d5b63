"""The engine of the service tests, for the smoke test of the images."""

from tests.service.conftest import bundled_engine as bundled_engine
