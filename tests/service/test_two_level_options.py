"""The options of two-level verification and the certified head on the command line and in the service's settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specpilot.cli import main
from specpilot.engines.mechanisms import Mechanisms
from specpilot.errors import ConfigError
from specpilot_service.settings import load_settings

CALL = (
    "generate",
    "What is 6 times 7?",
    "--max-tokens",
    "24",
    "--mode",
    "judge",
    "--num-threads",
    "1",
    "--json",
)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    exit_code = main([*CALL, *arguments])
    return exit_code, json.loads(capsys.readouterr().out)


def test_ids_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain = run_json(capsys, "--drafter", "none")
    for options in (
        ("--builder", "best_first", "--nodes", "16", "--q-weights", "int8", "--certified-head"),
        ("--q-weights", "w12_view", "--q-gate"),
        ("--drafter", "none", "--certified-head"),
    ):
        exit_code, answer = run_json(capsys, *options)
        assert exit_code == 0
        assert answer["token_ids"] == plain["token_ids"]


def test_what_does_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (("--q-gate",), ("--drafter", "none", "--q-weights", "int8"), ("--q-weights", "int4")):
        exit_code, answer = run_json(capsys, *options)
        assert exit_code == 2 and "error" in answer


def test_settings_of_the_service() -> None:
    settings = load_settings(["--q-weights", "int6", "--q-gate", "--certified-head"], {})
    assert settings.mechanisms == Mechanisms(q_weights="int6", is_q_gated=True, has_certified_head=True)
    with pytest.raises((ConfigError, ValueError), match="q_weights"):
        load_settings(["--q-gate"], {})
