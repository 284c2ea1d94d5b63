"""Which kernel architecture a device can run."""

import subprocess
import sys

import pytest
import torch

from specpilot_kernels.device import SupportedDevice, UnsupportedDevice, classify_device, query_device


@pytest.mark.parametrize(("capability", "arch"), [((9, 0), "sm90"), ((12, 0), "sm120")])
def test_built_architectures_are_supported(capability: tuple[int, int], arch: str) -> None:
    assert classify_device(1, "card", capability) == SupportedDevice(1, "card", arch)  # type: ignore[arg-type]


@pytest.mark.parametrize("capability", [(7, 0), (8, 9), (9, 1), (10, 0), (12, 1), (13, 0)])
def test_a_neighbouring_capability_is_unsupported_and_named(capability: tuple[int, int]) -> None:
    answer = classify_device(0, "card", capability)
    assert isinstance(answer, UnsupportedDevice)
    assert f"{capability[0]}.{capability[1]}" in answer.reason
    assert "9.0 (sm90)" in answer.reason and "12.0 (sm120)" in answer.reason


def test_the_real_machine_gets_a_typed_answer() -> None:
    answer = query_device(0)
    assert answer.index == 0
    if not torch.cuda.is_available():
        assert isinstance(answer, UnsupportedDevice)
        assert "no CUDA device" in answer.reason


def test_a_device_number_past_the_last_is_unsupported() -> None:
    assert isinstance(query_device(torch.cuda.device_count() + 1), UnsupportedDevice)


def test_a_negative_device_number_is_refused() -> None:
    with pytest.raises(ValueError, match="got -1"):
        query_device(-1)


def test_importing_the_package_does_not_import_torch() -> None:
    script = "import sys, specpilot_kernels.device; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
