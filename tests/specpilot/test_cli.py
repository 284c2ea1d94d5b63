"""The convention of every verb: one JSON object, clear errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import specpilot
from specpilot.cli import main
from specpilot.cli.serve import DEFAULT_PROFILE

ROOT = Path(__file__).parents[2]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    exit_code = main(arguments)
    captured = capsys.readouterr()
    return exit_code, captured.out, captured.err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"{specpilot.__version__}\n", "")
    exit_code, out, _ = run(capsys, "--help")
    assert exit_code == 0 and all(verb in out for verb in ("serve", "generate", "demo", "bench"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "fly"),
        (["generate"], "prompt"),
        (["generate", "Hi", "--temprature", "1"], "--temprature"),
        (["generate", "Hi", "--temperature", "5"], "temperature"),
        (["generate", "Hi", "--top-p", "0"], "top_p"),
        (["forcing", "audit", "--prompts", "16", "--max-tokens", "64"], "expected enough for the 2000"),
        (
            ["forcing", "audit", "--url", "http://127.0.0.1:9", "--prompts", "8", "--max-tokens", "249"],
            "249 tokens",
        ),
        (["generate", "Hi", "--mode", "fast"], "--mode"),
        (["generate", "Hi", "--max-tokens", "0"], "--max-tokens"),
        (["generate", "Hi", *(["--stop", "x"] * 17)], "stop"),
        (["generate", "Hi", "--top-k", "-1"], "top_k"),
        (["generate", "Hi", "--min-p", "2"], "min_p"),
        (["generate", "Hi", "--repetition-penalty", "0"], "repetition_penalty"),
        (["generate", "Hi", "--frequency-penalty", "3"], "frequency_penalty"),
        (["generate", "Hi", "--presence-penalty", "-3"], "presence_penalty"),
        (["generate", "Hi", "--logit-bias", "50"], "logit_bias: got '50', expected ID=BIAS"),
        (["generate", "Hi", "--logit-bias", "a=1"], "logit_bias: got 'a=1'"),
        (["generate", "Hi", "--logit-bias", "50=101"], "between -100 and 100"),
        (["generate", "Hi", "--json-schema", "/absent.json"], "/absent.json"),
        (["generate", "Hi", "--builder", "beam"], "--builder"),
        (["generate", "Hi", "--nodes", "65"], "--nodes"),
        (["generate", "Hi", "--positions", "0"], "--positions"),
        (["generate", "Hi", "--cost-aware"], "is_cost_aware"),
        (["generate", "Hi", "--gdn-form", "wy"], "gdn_form"),
        (["bench", "--drafter", "dflash2", "--requests", "x", "--node-budget", "0"], "--node-budget"),
        (["generate", "\udcff"], "UTF-8"),
        (["bench", "--drafter", "dflash2"], "--requests"),
        (["bench", "--drafter", "dflash2", "--requests", "/absent.jsonl"], "/absent.jsonl"),
        (["demo", "--max-tokens", "many"], "--max-tokens"),
    ],
)
def test_wrong_call_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    exit_code, out, err = run(capsys, *arguments)
    assert (exit_code, out) == (2, "")
    assert len(err.splitlines()) == 1 and err.startswith("specpilot: ") and words in err
    exit_code, out, err = run(capsys, *arguments, "--json")
    assert exit_code == 2 and len(err.splitlines()) == 1
    error: dict[str, Any] = json.loads(out)["error"]
    assert words in error["message"] and error["type"]


def test_model_that_is_not_there_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    exit_code, out, err = run(capsys, "generate", "Hi", "--model", str(tmp_path / "nowhere"), "--json")
    assert exit_code == 1 and "nowhere" in err and len(err.splitlines()) == 1
    assert "nowhere" in json.loads(out)["error"]["message"]


def test_serve_hands_its_flags_to_the_service() -> None:
    command = [sys.executable, "-c", "import sys; from specpilot.cli import main; sys.exit(main())", "serve"]

    def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=ROOT, env=os.environ, capture_output=True, text=True
        )

    helped = serve("--help")
    assert helped.returncode == 0 and "--max-waiting" in helped.stdout
    wrong = serve("--prot", "1")
    assert wrong.returncode == 2 and "--prot" in wrong.stderr and len(wrong.stderr.splitlines()) == 1


def test_up_tells_what_it_adds_to_the_sidecar() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from specpilot.cli import main; sys.exit(main())",
        "up",
        "--help",
    ]
    helped = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert helped.returncode == 0 and "--admin-port" in helped.stdout
    assert "--console" in helped.stdout and f"--profile {DEFAULT_PROFILE}" in helped.stdout
