"""The verbs on the bundled model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import specpilot
from specpilot.bench.rows import ROW_VERSION
from specpilot.cli import main

pytestmark = pytest.mark.skipif(
    not (Path(specpilot.__file__).parent / "models" / "bundled" / "target").exists(),
    reason="the bundled model is not in this checkout",
)

QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    exit_code = main([*arguments, "--num-threads", "1", "--json"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    return exit_code, json.loads(out)


def test_generate(capsys: pytest.CaptureFixture[str]) -> None:
    call = ("generate", QUESTION, "--max-tokens", "24", "--mode", "judge")
    exit_code, answer = run_json(capsys, *call)
    assert exit_code == 0 and answer["drafter"] == "dflash2" and answer["tau"] > 1
    exit_code, plain = run_json(capsys, *call, "--drafter", "none")
    assert exit_code == 0 and plain["drafter"] == "none" and plain["tau"] == 1.0
    assert plain["token_ids"] == answer["token_ids"] and plain["text"] == answer["text"]
    assert main([*call, "--num-threads", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.out == answer["text"] + "\n"
    assert "tau" in captured.err


def test_generate_seeded_raw_with_stop(capsys: pytest.CaptureFixture[str]) -> None:
    call = (
        "generate",
        "def add(a, b):",
        "--raw",
        "--temperature",
        "0.8",
        "--seed",
        "5",
        "--max-tokens",
        "16",
        "--mode",
        "judge",
    )
    (_, first), (_, second) = run_json(capsys, *call), run_json(capsys, *call)
    assert first["token_ids"] == second["token_ids"]
    middle = len(first["text"]) // 2
    _, stopped = run_json(capsys, *call, "--stop", first["text"][middle : middle + 2])
    assert len(stopped["text"]) <= middle and stopped["finish_reason"] == "stop"


def test_generate_with_every_sampling_option(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each acts: a greedy answer with it is another one, except those that only narrow a draw."""
    call = ("generate", QUESTION, "--max-tokens", "24", "--mode", "judge")
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 2}')
    _, stock = run_json(capsys, *call)
    for options in (
        ("--repetition-penalty", "1.8"),
        ("--frequency-penalty", "2"),
        ("--presence-penalty", "2", "--repetition-penalty", "1.8"),
        ("--logit-bias", f"{stock['token_ids'][0]}=-100", "--logit-bias", "9=4.5"),
        ("--json-schema", str(schema)),
    ):
        exit_code, answer = run_json(capsys, *call, *options)
        assert exit_code == 0 and answer["token_ids"] != stock["token_ids"], options
    assert set(json.loads(answer["text"])) <= {1, 2}
    drawn = ("--temperature", "2", "--seed", "3")
    for narrow in (("--top-k", "1"), ("--top-p", "0.0001"), ("--min-p", "1")):
        assert run_json(capsys, *call, *drawn, *narrow)[1]["token_ids"] == stock["token_ids"]
    assert run_json(capsys, *call, *drawn)[1]["token_ids"] != stock["token_ids"]


def test_generate_with_trees(capsys: pytest.CaptureFixture[str]) -> None:
    call = ("generate", QUESTION, "--max-tokens", "24", "--mode", "judge")
    _, stock = run_json(capsys, *call)
    for options, name in (
        (("--builder", "best_first", "--nodes", "16"), "best_first"),
        (("--builder", "ddtree", "--nodes", "12", "--positions", "4", "--drafter", "dspark"), "ddtree"),
        (("--builder", "best_first", "--nodes", "32", "--cost-aware"), "best_first"),
    ):
        exit_code, answer = run_json(capsys, *call, *options)
        assert exit_code == 0 and answer["token_ids"] == stock["token_ids"]
        assert set(answer["mechanisms"]) == {name}
    exit_code, refused = run_json(capsys, *call, "--builder", "best_first", "--gdn-form", "wy")
    assert exit_code == 1 and refused["error"]["type"] == "Unsupported"
    assert "judge mode" in refused["error"]["message"]
    exit_code, refused = run_json(capsys, *call, "--builder", "best_first", "--drafter", "none")
    assert exit_code == 2 and "without a drafter" in refused["error"]["message"]


def test_unknown_drafter_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, answer = run_json(capsys, "generate", "Hi", "--drafter", "eagle9")
    assert (
        exit_code == 2 and "eagle9" in answer["error"]["message"] and "dflash2" in answer["error"]["message"]
    )


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, report = run_json(
        capsys, "demo", "--max-tokens", "24", "--builder", "best_first", "--nodes", "12"
    )
    assert exit_code == 0 and report["ids_equal"] is True and report["mechanisms"]["num_nodes"] == 12
    exit_code, report = run_json(capsys, "demo", "--max-tokens", "24")
    assert exit_code == 0 and report["ids_equal"] is True
    assert report["drafters"]["dflash2"]["tau"] > 1
    assert report["drafters"]["dflash2"]["speedup_over_ar"] > 0
    assert isinstance(report["serve"]["first_divergences"], list)


def test_bench(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    rows = [
        {"id": "one", "prompt": QUESTION},
        {"turns": ["Write a Python function that adds two numbers.", "Now three."]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    call = ("bench", "--requests", str(path), "--drafter", "dflash2", "--max-tokens", "24", "--mode", "judge")
    exit_code, row = run_json(capsys, *call)
    assert exit_code == 0 and row["row_version"] == ROW_VERSION
    assert (row["num_requests"], row["num_answers"], row["num_diverged"]) == (2, 3, 0)
    assert row["tau"] == pytest.approx(1 + sum(row["accept_by_position"]))
    assert len(row["requests"]["sha256"]) == len(row["chat_template_sha256"]) == 64
    assert row["options"]["drafter"] == "dflash2" and row["engine"]["numeric_mode"] == "judge"
    trees = ("--builder", "best_first", "--nodes", "16", "--node-budget", "16", "--drafter-blocks")
    exit_code, row = run_json(capsys, *call, *trees, "--whole-prompt-rows", "128", "--prompt-rows", "32")
    assert exit_code == 0 and row["num_diverged"] == 0
    assert (
        row["options"]["mechanisms"]["builder"] == "best_first"
        and row["options"]["batch"]["node_budget"] == 16
    )
    exit_code, error = run_json(capsys, *call[:4], "eagle9")
    assert exit_code == 2 and "eagle9" in error["error"]["message"]
