"""A profile that is wrong is refused when it is read, with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.errors import ConfigError
from specpilot.profiles import load_profiles
from tests.specpilot.profiles.row_builder import DELETED, ROW, changed, write_store


def test_the_row_of_these_tests_is_right(tmp_path: Path) -> None:
    (profile,) = write_store(tmp_path, ROW).profiles
    assert profile.name == "h100/t--dflash2--single"


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("color", "red", "unknown key 'color'"),
        ("engine/args", {}, "unknown key 'args'"),
        ("name", "h100/x--y--z", "the path is the name"),
        ("schema", 2, "expected 1"),
        ("schema", True, "expected int"),
        ("version", 0, "expected 1 or more"),
        ("title", DELETED, "'title' is missing"),
        ("switch", "restart", "expected one of"),
        ("startup_budget_s", "60", "expected int"),
        ("deployment/gpu", "h200", "expected the folder's name"),
        ("deployment/num_requests", [], "batch sizes"),
        ("deployment/num_requests", [1, 2], r"expected \[1\]"),
        ("deployment/num_requests", 1, "expected a list"),
        ("deployment/drafter/kind", "medusa", "expected one of"),
        ("deployment/drafter/kind", "suffix", "SGLang does not run"),
        ("deployment/drafter/kind", "none", "without a drafter"),
        ("engine/version", DELETED, "engine.version"),
        ("engine/arguments/port", 1, "follows from the deployment"),
        ("engine/arguments/speculative-num-draft-tokens", DELETED, "speculative-num-draft-tokens"),
        (
            "engine/arguments/speculative-draft-attention-backend",
            DELETED,
            "speculative-draft-attention-backend",
        ),
        ("engine/arguments/context-length", DELETED, "context-length"),
        ("deployment/target/weights", "fp8", "speculative-draft-model-quantization"),
        ("engine/arguments/context-length", [1], "expected a string, number or boolean"),
        ("engine/environment", {"A": 1}, "expected str"),
        ("mechanisms", [{"id": "warp-drive"}], "'warp-drive'"),
        ("mechanisms", [{"id": "draft-tree", "options": {"rows": 3}}], "unknown option 'rows'"),
        ("mechanisms", [{"id": "draft-tree", "options": {"nodes": "3"}}], "nodes: got '3'"),
        ("mechanisms", [{"id": "draft-tree", "options": {"builder": "chain"}}], "builder: got 'chain'"),
        ("mechanisms", [{"id": "certified-head"}, {"id": "certified-head"}], "every mechanism once"),
        ("memory/kv_tokens", DELETED, "all or none"),
        ("evidence", {"kind": "untested", "source": "x", "numbers": {"tau": 2.0}}, "marked untested"),
        ("evidence", {"kind": "measured here", "source": "x"}, "expected some"),
        (
            "evidence",
            {"kind": "measured here", "source": "x", "numbers": {"speed": 2.0}},
            "expected one of",
        ),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, path: str, value: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        write_store(tmp_path, changed(path, value))
    assert "t--dflash2--single.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("dspark", "speculative-dspark-block-size"), ("eagle3", "speculative-num-steps")],
)
def test_speculation_is_given_whole(tmp_path: Path, kind: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        write_store(tmp_path, changed("deployment/drafter/kind", kind))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    write_store(tmp_path, ROW)
    path = tmp_path / "h100" / "t--dflash2--single.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "version: 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'version' twice"):
        load_profiles(tmp_path)


def test_the_same_row_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="says the same as"):
        write_store(tmp_path, ROW, changed("title", "another title"))


def test_a_folder_without_device_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gpus\.yaml"):
        load_profiles(tmp_path)


def test_the_id_follows_what_runs_and_nothing_else(tmp_path: Path) -> None:
    rows = {
        "same": changed("title", "other words"),
        "evidence": changed("evidence/source", "another place"),
        "nodes": changed("mechanisms", [{"id": "draft-tree", "options": {"nodes": 31}}]),
        "budget": changed("startup_budget_s", 61),
    }
    (first,) = write_store(tmp_path / "first", ROW).profiles
    ids = {
        name: write_store(tmp_path / name, row, name="h100/other--dflash2--name").profiles[0].profile_id
        for name, row in rows.items()
    }
    assert first.profile_id == ids["same"] == ids["evidence"]
    assert len({first.profile_id, ids["nodes"], ids["budget"]}) == 3
    # The same bytes in every process and release: a revision names them.
    assert first.profile_id == "sha256-2a7c8c9dbcc2fdf4"
