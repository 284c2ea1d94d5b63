"""``specpilot profiles``: one JSON object with --json, exit code 0 only when all is well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specpilot.cli import main
from specpilot.profiles import load_profiles


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["profiles", *words, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_list_judges_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    code, report, _ = call(capsys, "list", "--gpu", "cpu")
    assert code == 0 and report["machine"] == "cpu"
    states = {row["name"]: row["status"] for row in report["profiles"]}
    assert set(states) == {profile.name for profile in load_profiles().profiles}
    assert {status for name, status in states.items() if name.startswith("cpu/")} == {"runnable"}
    assert {status for name, status in states.items() if not name.startswith("cpu/")} == {"wrong gpu"}


def test_the_table_names_every_row_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "list", "--gpu", "h100"]) == 0
    shown = capsys.readouterr().out
    for profile in load_profiles().profiles:
        (line,) = [line for line in shown.splitlines() if profile.profile_id in line]
        assert profile.name in line


def test_show_gives_the_document_and_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    code, report, _ = call(capsys, "show", "h100/qwen3.8-27b--dflash2--single")
    assert code == 0
    assert report["evidence"]["kind"] == "quoted from the paper"
    assert report["evidence"]["numbers"]["speedup_over_ar"] == 8.86


def test_check_of_a_row_without_its_mechanisms_fails_and_offers_the_stock_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, report, _ = call(capsys, "check", "qwen3.8-27b--dflash2--single", "--gpu", "h100")
    assert code == 1 and report["status"] == "not runnable as specified"
    assert "sglang.launch_server" in report["degraded"]["stock_command"]


def test_check_of_a_cpu_row_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, report, _ = call(capsys, "check", "cpu/bundled--eagle3--tree", "--gpu", "cpu")
    assert (code, report["status"], report["degraded"]) == (0, "runnable", None)


def test_an_ambiguous_name_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    code, report, error = call(capsys, "resolve", "qwen3.8-27b--dflash2--single")
    assert code == 2 and report["error"]["type"] == "AmbiguousError"
    assert "pro6000/qwen3.8-27b--dflash2--single" in error


@pytest.mark.parametrize("override", ["context-length", "=1", "a=", "no-such=1"])
def test_a_wrong_override_is_a_wrong_call(capsys: pytest.CaptureFixture[str], override: str) -> None:
    code, report, _ = call(capsys, "resolve", "cpu/bundled--none--plain", "--set", override)
    assert code == 2 and report["error"]["type"] == "ConfigError"


@pytest.mark.parametrize("options", [[], ["--degraded"]])
def test_run_never_starts_what_the_machine_lacks(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    words = ["profiles", "run", "h100/qwen3.8-27b--dflash2--single", "--gpu", "h100", *options]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "draft-tree" in said and "SGLang 0.5.20 is not installed" in said
