"""Settings of the whole suite."""

import os

from hypothesis import settings

import specpilot as specpilot  # before any test imports torch

# No deadline: a slow machine must not fail a property. In CI the examples are the same on every run.
settings.register_profile("suite", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("suite")
