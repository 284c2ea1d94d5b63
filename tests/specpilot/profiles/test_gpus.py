"""Which device this is: the longest product string wins, two equal ones are an error."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from specpilot.errors import AmbiguousError, ConfigError, Unsupported
from specpilot.profiles import (
    GpuIdentity,
    detect_gpus,
    find_machine,
    load_profiles,
    match_gpu,
    parse_nvidia_smi,
)

STORE = load_profiles()
H100 = "NVIDIA H100 80GB HBM3, 9.0, 81559, 81007, 580.65.06"
PRO = "NVIDIA RTX PRO 6000 Blackwell Server Edition, 12.0, 97887, 97000, 580.65.06"


def install_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")


def test_lines_of_nvidia_smi_are_read() -> None:
    (gpu, other) = parse_nvidia_smi(f"{H100}\n\n{PRO}\n")
    assert gpu == GpuIdentity("NVIDIA H100 80GB HBM3", "9.0", 81559, 81007, "580.65.06")
    assert match_gpu(other, STORE.gpus).id == "pro6000"


@pytest.mark.parametrize(
    "line", ["NVIDIA H100, 9.0, 81559", "NVIDIA H100, 9.0, [N/A], 1, 5", "No devices were found"]
)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="nvidia-smi"):
        parse_nvidia_smi(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (H100, "h100"),
        ("NVIDIA H200, 9.0, 143771, 143000, 580", "h200"),
        ("nvidia h200, 9.0, 143771, 143000, 580", "h200"),
        (PRO, "pro6000"),
    ],
)
def test_the_class_is_found(line: str, expected: str) -> None:
    assert match_gpu(parse_nvidia_smi(line)[0], STORE.gpus).id == expected


@pytest.mark.parametrize(
    "line",
    [
        "NVIDIA H100 PCIe, 9.0, 81559, 81000, 580",  # the same compute capability and memory, another product
        "NVIDIA H100 80GB HBM3, 9.0, 40000, 40000, 580",  # half a card
        "NVIDIA H100 80GB HBM3, 12.0, 81559, 81000, 580",
        "NVIDIA H2000, 9.0, 143771, 143000, 580",  # words are compared, not letters
        "NVIDIA A100-SXM4-80GB, 8.0, 81920, 81000, 580",
    ],
)
def test_a_gpu_of_no_class_is_refused_with_the_known_ones(line: str) -> None:
    with pytest.raises(Unsupported, match="h100: NVIDIA H100 80GB HBM3"):
        match_gpu(parse_nvidia_smi(line)[0], STORE.gpus)


def test_the_longest_product_string_wins_and_two_equal_ones_are_an_error() -> None:
    (gpu,) = parse_nvidia_smi(H100)
    h100 = STORE.find_gpu("h100")
    short = dataclasses.replace(h100, id="short", product="NVIDIA H100")
    assert match_gpu(gpu, [short, h100]).id == match_gpu(gpu, [h100, short]).id == "h100"
    with pytest.raises(AmbiguousError) as caught:
        match_gpu(gpu, [short, h100, dataclasses.replace(h100, id="twin")])
    assert caught.value.candidates == ("h100", "twin")


def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_smi(tmp_path, monkeypatch, f"echo '{H100}'")
    machine = find_machine(STORE)
    assert machine.gpu == "h100"
    assert machine.free_gib == pytest.approx(81007 / 1024)
    assert find_machine(STORE, "pro6000").gpu == "pro6000"  # named: nothing is asked


def test_gpus_of_two_classes_are_ambiguous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_smi(tmp_path, monkeypatch, f"echo '{H100}'\necho '{PRO}'")
    with pytest.raises(AmbiguousError, match="h100, pro6000"):
        find_machine(STORE)


def test_a_driver_that_fails_is_not_the_same_as_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_smi(tmp_path, monkeypatch, "echo 'Driver/library version mismatch'\nexit 18")
    with pytest.raises(Unsupported, match="version mismatch"):
        detect_gpus()


def test_a_machine_without_nvidia_smi_is_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect_gpus() == []
    assert find_machine(STORE).gpu == "cpu"


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of: cpu, h100"):
        find_machine(STORE, "a100")
