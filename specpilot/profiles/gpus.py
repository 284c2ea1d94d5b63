"""Which device this is: compute capability, memory and product string together; the longest match wins."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.errors import AmbiguousError, ConfigError, Unsupported

__all__ = ["GpuClass", "GpuIdentity", "detect_gpus", "match_gpu", "parse_nvidia_smi"]

_QUERY = ("name", "compute_cap", "memory.total", "memory.free", "driver_version")


@dataclass(frozen=True)
class GpuIdentity:
    """A GPU as ``nvidia-smi`` describes it."""

    product: str
    compute_capability: str
    memory_mib: int
    free_mib: int
    driver: str

    def __str__(self) -> str:
        return f"{self.product} (compute capability {self.compute_capability}, {self.memory_mib} MiB)"


@dataclass(frozen=True)
class GpuClass:
    """A row of ``profiles/gpus.yaml``.

    Attributes
    ----------
    product
        First words of the product string.
    memory_mib
        Smallest and largest total memory.
    sm
        Architecture that kernels are compiled for, ``sm_90a``.
    label
        Value of the node label ``nvidia.com/gpu.product``.
    """

    id: str
    product: str
    compute_capability: str
    memory_mib: tuple[int, ...]
    sm: str
    label: str
    source: str

    def __post_init__(self) -> None:
        if len(self.memory_mib) != 2 or self.memory_mib[0] > self.memory_mib[1]:
            raise ConfigError(f"memory_mib: got {list(self.memory_mib)}, expected [smallest, largest]")

    def matches(self, gpu: GpuIdentity) -> bool:
        words, wanted = gpu.product.lower().split(), self.product.lower().split()
        return (
            words[: len(wanted)] == wanted
            and gpu.compute_capability == self.compute_capability
            and self.memory_mib[0] <= gpu.memory_mib <= self.memory_mib[1]
        )


def match_gpu(gpu: GpuIdentity, classes: Sequence[GpuClass]) -> GpuClass:
    """The class whose product string is the longest that fits.

    Raises
    ------
    Unsupported
        No class fits; what is closest is named with the value that does not.
    AmbiguousError
        Two classes fit equally well.
    """
    fitting = [row for row in classes if row.matches(gpu)]
    if not fitting:
        known = "; ".join(
            f"{row.id}: {row.product}, {row.compute_capability}, {row.memory_mib[0]}-{row.memory_mib[1]} MiB"
            for row in classes
        )
        raise Unsupported(
            f"GPU: got {gpu}, expected one of: {known}; add a row to gpus.yaml and profiles measured on it"
        )
    longest = max(len(row.product.split()) for row in fitting)
    best = [row for row in fitting if len(row.product.split()) == longest]
    if len(best) > 1:
        names = tuple(row.id for row in best)
        raise AmbiguousError(
            f"GPU: {gpu} fits {', '.join(names)} equally well, expected one; make the product strings or memory "
            "ranges of gpus.yaml disjoint, or name the GPU",
            candidates=names,
        )
    return best[0]


def parse_nvidia_smi(text: str) -> list[GpuIdentity]:
    """Lines of ``nvidia-smi --query-gpu=name,compute_cap,memory.total,memory.free,driver_version`` as CSV.

    Raises
    ------
    ConfigError
        A line has other columns, or a number is none.
    """
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        columns = [column.strip() for column in line.split(",")]
        try:
            product, capability, total, free, driver = columns
            found.append(GpuIdentity(product, capability, int(total), int(free), driver))
        except ValueError:
            raise ConfigError(
                f"nvidia-smi: got the line {line!r}, expected {', '.join(_QUERY)} with memory in MiB"
            ) from None
    return found


def detect_gpus() -> list[GpuIdentity]:
    """The GPUs ``nvidia-smi`` shows; none where the program is not installed.

    Raises
    ------
    Unsupported
        ``nvidia-smi`` is there and fails: a broken driver is not the same as no GPU.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported(f"nvidia-smi: {error}; repair the driver, or name the GPU") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise Unsupported(
            f"nvidia-smi: exit code {done.returncode}: {said}; repair the driver, or name the GPU"
        )
    return parse_nvidia_smi(done.stdout)
