"""``specpilot replay`` and ``specpilot conformance`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from specpilot.cli import main
from specpilot.conformance import runner
from specpilot.conformance.case import Case, expect_equal
from tests.oracles.recorded_steps import record_answers


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = main([str(argument) for argument in (*arguments, "--json")])
    return code, json.loads(capsys.readouterr().out)


def test_record_run_and_oracle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"prompt": "Tom has 3 apples and buys 4. How many has he?"}\n', encoding="utf-8")
    out = tmp_path / "records"
    code, report = run(
        capsys, "replay", "record", "--requests", requests, "--out", out, "--drafter", "dflash2", "--drafter",
        "suffix", "--max-tokens", 40,
    )  # fmt: skip
    assert code == 0 and report["num_steps"] == 2 * (report["num_tokens"] - 1)
    picture = tmp_path / "tau.svg"
    code, report = run(
        capsys, "replay", "run", "--records", out, "--drafter", "dflash2", "--builder", "best_first", "--builder",
        "chain", "--nodes", 4, "--nodes", 8, "--picture", picture,
    )  # fmt: skip
    assert code == 0
    rows = {(row["builder"], row["nodes"]): row for row in report["rows"]}
    assert set(rows) == {(name, nodes) for name in ("best_first", "chain", "oracle") for nodes in (4, 8)}
    assert all(row["counted"] == "own" for row in rows.values())
    assert rows["best_first", 8]["tau_recorded"] <= rows["oracle", 8]["tau_recorded"]
    svg = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    texts = [element.text for element in svg.iter() if element.tag.endswith("text")]
    assert {"best_first", "chain", "oracle", "4", "8"} <= set(texts)
    assert len([element for element in svg.iter() if element.tag.endswith("polyline")]) == 3
    code, report = run(capsys, "replay", "oracle", "--records", out, "--drafter", "dflash2")
    assert code == 0 and {row["builder"] for row in report["rows"]} == {"oracle"}
    code, report = run(capsys, "replay", "run", "--records", out, "--builder", "chain")
    assert code == 2 and "dflash2, suffix" in report["error"]["message"]
    code, report = run(
        capsys, "replay", "record", "--requests", requests, "--out", out, "--drafter", "dflash2"
    )
    assert code == 2 and "holds a recording" in report["error"]["message"]


def test_wrong_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_answers(tmp_path / "records", num_answers=1)
    for arguments, words in (
        (("replay", "run", "--records", tmp_path / "none", "--builder", "chain"), "cannot read"),
        (("replay", "run", "--records", tmp_path / "records", "--builder", "beam"), "'beam'"),
        (("replay", "run", "--records", tmp_path / "records", "--builder", "chain", "--nodes", 0), "--nodes"),
        (("replay", "run", "--builder", "chain"), "--records"),
        (
            (
                "replay", "oracle", "--records", tmp_path / "records", "--picture", tmp_path / "no" / "folder.svg",
            ),
            "cannot write",
        ),
    ):  # fmt: skip
        code, report = run(capsys, *arguments)
        assert code == 2 and words in report["error"]["message"]


def test_conformance_fails_with_one_bad_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(number: int) -> int:
        expect_equal("number", number, 1)
        return 1

    monkeypatch.setattr(runner, "MECHANISMS", ("chain",))
    monkeypatch.setattr(runner, "all_cases", lambda: iter([Case("chain", "two", check, 1, 2)]))
    assert main(["conformance"]) in (0, 1)
    capsys.readouterr()
    code, report = run(capsys, "conformance")
    rows = [{"mechanism": "chain", "ok": True, "control": "two", "control_caught": True}]
    assert [{key: row[key] for key in rows[0]} for row in report["rows"]] == rows
    monkeypatch.setattr(runner, "all_cases", lambda: iter([Case("chain", "one", check, 1, 1)]))
    code, report = run(capsys, "conformance")
    assert code == 1 and not report["ok"]
