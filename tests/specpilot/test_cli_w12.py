"""``specpilot w12``: each verb on a small checkpoint, and what it says when a file is damaged."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from specpilot.cli import main
from tests.kernels.w12_files import mixed_tensors, write_plain

CALL = tuple[int, dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    write_plain(tmp_path / "model" / "model.safetensors", mixed_tensors())
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> CALL:
    exit_code = main(["w12", *arguments, "--json"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    return exit_code, json.loads(out)


def test_encode_verify_stat_decode(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run_json(capsys, "encode", str(folder))
    encoded = tmp_path / "model-w12"
    assert code == 0 and report["files"] == {
        str(encoded / "model.w12"): (encoded / "model.w12").stat().st_size
    }
    code, report = run_json(capsys, "verify", str(encoded))
    assert (code, report["is_ok"]) == (0, True)
    picture = tmp_path / "windows.svg"
    code, report = run_json(capsys, "stat", str(encoded), "--picture", str(picture))
    (entry,) = report["checkpoints"]
    assert code == 0 and (entry["num_tensors"], entry["num_encoded"]) == (14, 3)
    assert entry["encoded_weights"] == 130 * 120 + 256 * 64 + 129 * 185
    assert 12 < entry["bits_per_encoded_weight"] < 16 and 0 <= entry["escape_rate"] < 0.01
    assert [layer["name"] for layer in entry["layers"]] == ["model.embed.weight", "layer 0"]
    texts = [text.text for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "model.layers.0.mlp.up.weight" in texts and "half" not in texts
    code, report = run_json(capsys, "decode", str(encoded), "--out", str(tmp_path / "again"))
    assert code == 0
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_the_mlp_alone_and_single_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run_json(capsys, "encode", str(folder / "model.safetensors"), "--mlp-only")
    assert code == 0
    _, report = run_json(capsys, "stat", str(folder / "model.w12"))
    assert report["checkpoints"][0]["num_encoded"] == 1


def test_damage_is_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "model.w12"
    run_json(capsys, "encode", str(folder / "model.safetensors"))
    content = bytearray(file.read_bytes())
    content[-200] ^= 2
    file.write_bytes(content)
    code, report = run_json(capsys, "verify", str(file))
    assert code == 1 and not report["is_ok"] and len(report["files"][0]["faults"]) == 1
    assert main(["w12", "verify", str(file)]) == 1
    assert capsys.readouterr().out.startswith("FAULT")
    code, report = run_json(capsys, "decode", str(file), "--out", str(tmp_path / "x.safetensors"))
    assert code == 1 and report["error"]["type"] == "CheckpointError"
    assert not (tmp_path / "x.safetensors").exists()
    file.write_bytes(content[:100])
    code, report = run_json(capsys, "verify", str(file))
    assert code == 1 and "cut short" in report["files"][0]["faults"][0]
    code, report = run_json(capsys, "verify", str(tmp_path))
    assert (code == 1 and "error" in report) or not report["is_ok"]


def test_the_bundled_models_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run_json(capsys, "verify")
    assert code == 0 and len(report["files"]) == 5
    assert all(row["num_encoded"] for row in report["files"])
    code, report = run_json(capsys, "decode")
    assert code == 2 and "say where" in report["error"]["message"]


def test_calls_that_would_do_something_else_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for arguments in (["encode", ""], ["verify", ""], ["encode", str(folder), "--out", ""]):
        code, report = run_json(capsys, *arguments)
        assert code == 2 and "empty path" in report["error"]["message"]
    code, report = run_json(capsys, "stat", "--picture", str(tmp_path / "p.png"))
    assert code == 2 and "*.svg" in report["error"]["message"] and not (tmp_path / "p.png").exists()
    (folder / "model-00001-of-00002.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    code, report = run_json(capsys, "encode", str(folder))
    assert code == 1 and "model-00002-of-00002.safetensors: missing" in report["error"]["message"]
    assert not (tmp_path / "model-w12").exists()
