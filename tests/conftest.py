"""Settings of the whole suite."""

import os
from pathlib import Path

from hypothesis import settings

import specpilot as specpilot  # before any test imports torch

# Without a GPU, kernels written in Triton run in its interpreter; it is chosen when triton is imported first.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# No deadline: a slow machine must not fail a property. In CI the examples are the same on every run.
settings.register_profile("suite", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("suite")
