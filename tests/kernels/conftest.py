"""Threads of the kernels, set for one test; a file of weights, plain and encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specpilot_kernels import cpu_jit, cpu_pool
from specpilot_kernels.w12.convert import encode_file
from tests.kernels.w12_files import mixed_tensors, write_plain


@pytest.fixture
def kernel_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets how many threads kernels take, however little work there is; skips where there are not so many CPUs."""
    before = cpu_jit.num_threads()

    def choose(num_threads: int) -> None:
        if num_threads > cpu_jit.max_threads():
            pytest.skip(f"{cpu_jit.max_threads()} CPUs run no {num_threads} threads")
        monkeypatch.setattr(cpu_pool, "SHARE_FROM", 0)
        cpu_jit.set_num_threads(num_threads)

    yield choose
    cpu_jit.set_num_threads(before)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    write_plain(tmp_path / "plain.safetensors", mixed_tensors())
    return tmp_path / "plain.safetensors"


@pytest.fixture
def encoded(plain: Path) -> Path:
    encode_file(plain, plain.with_suffix(".w12"))
    return plain.with_suffix(".w12")
