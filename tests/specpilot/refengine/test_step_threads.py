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
from specpilot_kernels import cpu_jit
import specpilot.refengine.step_costs as step_costs

def num_wakes():
    total = 0
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/status") as status:
                total += sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
    return total

engine = build_engine(num_threads=4)
if sys.argv[1] == "shared":
    cpu_jit.PARALLEL_FROM = 0
step_costs._ROWS, step_costs._REPEATS, step_costs._CONTEXT = (1, 8), 1, 20
before = num_wakes()
step_costs.measure_step_costs(engine.target, {"dflash2": engine.drafters["dflash2"]})
print(num_wakes() > before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are looked at in Linux's /proc")
@pytest.mark.parametrize(("work", "are_woken"), [("alone", False), ("shared", True)])
def test_small_steps_wake_no_threads(work: str, are_woken: bool) -> None:
    """Loading weights may have started threads; they sleep, and whoever wakes one makes it switch."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, work], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(are_woken)], done.stdout + done.stderr
