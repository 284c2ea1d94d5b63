"""Which kernel architecture a device can run, as a typed answer instead of an exception.

The kernels are written for two architectures that do not replace each other: ``sm90`` (compute capability
9.0: H100, H200) and ``sm120`` (12.0: RTX PRO 6000 Blackwell). Both are compiled for their exact architecture
(targets ``sm_90a`` and ``sm_120a``), and such code runs on no other, not even a newer one
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/, "Architecture-Specific Features").
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

__all__ = [
    "Arch",
    "SupportedDevice",
    "UnsupportedDevice",
    "classify_device",
    "query_device",
    "require_hopper",
]

Arch = Literal["sm90", "sm120"]

_ARCH_BY_CAPABILITY: dict[tuple[int, int], Arch] = {(9, 0): "sm90", (12, 0): "sm120"}


@dataclass(frozen=True)
class SupportedDevice:
    """A device one of the kernel architectures runs on."""

    index: int
    name: str
    arch: Arch


@dataclass(frozen=True)
class UnsupportedDevice:
    """No kernel runs on this device; ``reason`` says what was found and what was expected."""

    index: int
    reason: str


def classify_device(
    index: int, name: str, capability: tuple[int, int]
) -> SupportedDevice | UnsupportedDevice:
    """Match a compute capability (major, minor) against the architectures the kernels are built for."""
    arch = _ARCH_BY_CAPABILITY.get(capability)
    if arch is None:
        known = ", ".join(f"{major}.{minor} ({arch})" for (major, minor), arch in _ARCH_BY_CAPABILITY.items())
        got = f"{capability[0]}.{capability[1]}"
        return UnsupportedDevice(index, f"{name} has compute capability {got}; the kernels run on {known}")
    return SupportedDevice(index, name, arch)


def query_device(index: int = 0) -> SupportedDevice | UnsupportedDevice:
    """Ask the driver about CUDA device ``index``.

    A machine without CUDA or without that device is an ``UnsupportedDevice``, not an error: callers choose
    what to do and must say so. A negative index is a ValueError.
    """
    if index < 0:
        raise ValueError(f"index: got {index}, expected a CUDA device number >= 0")
    import torch  # here, so that importing this module costs nothing

    if not torch.cuda.is_available():
        return UnsupportedDevice(
            index, f"torch {torch.__version__} sees no CUDA device; the kernels need one"
        )
    count = torch.cuda.device_count()
    if index >= count:
        return UnsupportedDevice(index, f"CUDA device {index} does not exist; this machine has {count}")
    return classify_device(index, torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index))


@functools.cache
def require_hopper(name: str, device: torch.device) -> None:
    """RuntimeError, which begins with ``name``, unless the device is one of compute capability 9.0.

    Asked once for every device: the answer does not change, and asking takes longer than a product.
    """
    if device.type != "cuda":
        raise RuntimeError(f"{name}: {device} is no CUDA device; expected one of compute capability 9.0")
    found = query_device(device.index)
    if not isinstance(found, SupportedDevice):
        raise RuntimeError(f"{name}: {found.reason}; expected compute capability 9.0")
    if found.arch != "sm90":
        raise RuntimeError(f"{name}: {found.name} is {found.arch}; expected compute capability 9.0")
