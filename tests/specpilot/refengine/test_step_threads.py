"""A step of one request runs on the thread that asks for it: no kernel wakes threads for work too small to share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
import specpilot
from specpilot.models.build import build_engine
from specpilot.refengine.step_costs import measure_step_costs
from specpilot_kernels import cpu_jit

def threads():
    return len(os.listdir("/proc/self/task"))

engine = build_engine(num_threads=4)
before = threads()
if sys.argv[1] == "share":
    cpu_jit.PARALLEL_FROM = 0
import specpilot.refengine.step_costs as step_costs
step_costs._ROWS, step_costs._REPEATS, step_costs._CONTEXT = (1, 8), 1, 20
measure_step_costs(engine.target, {"dflash2": engine.drafters["dflash2"]})
print(threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in Linux's /proc")
@pytest.mark.parametrize(("work", "started"), [("alone", 0), ("share", 3)])
def test_small_steps_start_no_threads(work: str, started: int) -> None:
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, work], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(started)], done.stdout + done.stderr
