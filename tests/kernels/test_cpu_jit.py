"""Compiling kernels: what is kept on disk, and the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaWarning

from specpilot_kernels import cpu_jit

KERNEL = """
import logging
logging.basicConfig()
from specpilot_kernels.cpu_jit import kernel

@kernel("i8(i8)")
def double(x):
    return 2 * x

print(double(21), len(double.stats.cache_hits), len(double.stats.cache_misses))
"""


def run_kernel(tmp_path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    if not script.exists():
        script.write_text(KERNEL, encoding="utf-8")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)


def test_a_kernel_is_compiled_once_and_kept(tmp_path: Path) -> None:
    first = run_kernel(tmp_path, tmp_path / "kept")
    assert first.stdout.split() == ["42", "0", "1"], first.stderr
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [
        path.name for path in (tmp_path / "kept").glob("specpilot-kernels-*")
    ]
    second = run_kernel(tmp_path, tmp_path / "kept")
    assert second.stdout.split() == ["42", "1", "0"], second.stderr


def test_a_folder_that_cannot_be_written_costs_a_warning_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    done = run_kernel(tmp_path, tmp_path / "file" / "cache")
    assert done.stdout.split()[0] == "42", done.stderr
    assert "compiled anew at every start" in done.stderr and "set NUMBA_CACHE_DIR" in done.stderr


TOO_LARGE_TO_KEEP = np.ones(200_000)
"""Its address would stand in the machine code."""


def test_a_kernel_that_cannot_be_kept_fails_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyproject.toml makes numba's warning an error, when a kernel's module is imported as much as here."""
    monkeypatch.setattr(cpu_jit, "_kept_kernels", lambda: str(tmp_path))

    def keep(index: int) -> int:
        return index + 1

    def lose(index: int) -> float:
        return float(TOO_LARGE_TO_KEEP[index])

    cpu_jit.kernel("i8(i8)")(keep)
    assert list(tmp_path.rglob("*keep*.nbc"))
    with pytest.raises(NumbaWarning, match='Cannot cache compiled function "lose"'):
        cpu_jit.kernel("f8(i8)")(lose)
    assert not list(tmp_path.rglob("*lose*.nbc"))


@pytest.mark.parametrize("num_threads", [0, -1, 100_000])
def test_an_impossible_number_of_threads_is_refused(num_threads: int) -> None:
    with pytest.raises(ValueError, match=rf"got {num_threads}, expected 1 to \d+, the CPUs"):
        cpu_jit.set_num_threads(num_threads)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "max 100000\n"}, sys.maxsize),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, sys.maxsize),
        ({"cpu.max": "what\n"}, sys.maxsize),
        ({}, sys.maxsize),
    ],
)
def test_a_quota_of_the_container_is_read(tmp_path: Path, files: dict[str, str], cpus: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert cpu_jit._quota_cpus(tmp_path) == cpus


def test_no_more_threads_than_the_quota_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpu_jit._config, "NUMBA_NUM_THREADS", 8)
    for cpus, most in ((0.5, 1), (1.9, 1), (3.0, 3), (64.0, 8)):
        monkeypatch.setattr(cpu_jit, "_quota_cpus", lambda groups, cpus=cpus: cpus)
        assert cpu_jit.max_threads() == most
    monkeypatch.setenv("NUMBA_NUM_THREADS", "8")
    monkeypatch.setattr(cpu_jit, "_quota_cpus", lambda groups: 1.0)
    assert cpu_jit.max_threads() == 8


def test_the_number_of_threads_holds_on_every_python_thread() -> None:
    script = """
import threading
from specpilot_kernels import cpu_jit
assert cpu_jit.num_threads() == 1
cpu_jit.set_num_threads(2)
def check():
    assert cpu_jit.num_threads() == 2
    print("ok")
check()
thread = threading.Thread(target=check); thread.start(); thread.join()
"""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["ok", "ok"], done.stderr


def test_threads_that_call_kernels_at_once_share_them_out() -> None:
    script = """
import threading
from specpilot_kernels import cpu_jit
cpu_jit.set_num_threads(4)
def run():
    for sharers, expected in ((1, 4), (2, 2), (3, 1), (4, 1), (9, 1), (1, 4)):
        cpu_jit.share_threads(sharers)
        assert cpu_jit.num_threads() == expected, (sharers, cpu_jit.num_threads())
    cpu_jit.share_threads(4)
    print("ok")
thread = threading.Thread(target=run); thread.start(); thread.join()
assert cpu_jit.num_threads() == 4  # another thread's share is its own
print("ok")
"""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["ok", "ok"], done.stderr
