"""A step of one request: helpers take parts of its products where the engine has threads for them, else nobody does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from specpilot_kernels.cpu_jit import max_threads

SCRIPT = """
import sys, threading
import specpilot
from specpilot.models.build import build_engine
from specpilot_kernels.cpu_pool import num_helped
import specpilot.refengine.step_costs as step_costs

engine = build_engine(num_threads=int(sys.argv[1]))
step_costs._ROWS, step_costs._REPEATS, step_costs._CONTEXT = (1, 8), 5, 20
before = num_helped()
for _ in range(2 if sys.argv[1] == "1" else 50):
    step_costs.measure_step_costs(engine.target, {"dflash2": engine.drafters["dflash2"]})
    if num_helped() > before:
        break
print(num_helped() > before, any(thread.name.startswith("kernel-helper") for thread in threading.enumerate()))
"""


@pytest.mark.parametrize(("num_threads", "are_helped"), [(1, False), (2, True)])
def test_steps_are_helped_where_there_are_threads(num_threads: int, are_helped: bool) -> None:
    if num_threads > max_threads():
        pytest.skip("this process has one CPU: a helper never comes while the caller is at work")
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(num_threads)], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(are_helped)] * 2, done.stdout + done.stderr
