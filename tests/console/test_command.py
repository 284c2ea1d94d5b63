"""``specpilot admin`` against a real sidecar: every route has its verb, one JSON object, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specpilot_console.command.run import main
from specpilot_console.command.show import show_text
from specpilot_console.command.verbs import build_parser, path_names
from specpilot_service.schemas.admin_routes import ADMIN_ROUTES, AdminRoute
from tests.console.conftest import key_file
from tests.service.sidecar.harness import LiveSidecar


def words_of(route: AdminRoute) -> list[str]:
    return route.name.replace("_", "-").split(".") + ["1" for _ in path_names(route)]


@pytest.fixture
def run(sidecar: LiveSidecar, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str, key: Path | None = None) -> tuple[int, Any]:
        where = ["--admin-url", sidecar.admin_url, "--key-file", str(key or key_file(sidecar)), "--json"]
        exit_code = main([*words, *where])
        return exit_code, json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("route", ADMIN_ROUTES, ids=lambda route: route.name)
def test_every_route_has_a_verb(route: AdminRoute) -> None:
    required = []
    for name, field in (route.request.model_fields if route.request else {}).items():
        if field.is_required():
            value = "viewer" if name == "scopes" else "0.5" if name == "share" else "x"
            required += [f"--{name.replace('_', '-')}", value]
    given = vars(build_parser().parse_args([*words_of(route), *required]))
    assert given["route"] == route.name
    assert {f"query_{name}" for name in route.query} <= given.keys()


def test_a_switch_and_the_way_back(run: Any, sidecar: LiveSidecar) -> None:
    exit_code, view = run("switches", "start", "--profile", "slow-start", "--reason", "try", "--wait")
    assert (exit_code, view["state"]) == (0, "applied")
    exit_code, view = run("switches", "start", "--profile", "broken", "--reason", "try", "--wait")
    assert (exit_code, view["state"]) == (1, "rolled_back") and view["error"]
    exit_code, view = run("revisions", "rollback", "1", "--reason", "back", "--wait")
    assert (exit_code, view["profile_name"]) == (0, "fast")
    exit_code, found = run("revisions", "list")
    assert found["current"] == 4 and exit_code == 0
    exit_code, found = run("revisions", "export", "4")
    assert "specpilot-revision" in found["text"]


def test_an_export_comes_back_as_an_import(run: Any, tmp_path: Path) -> None:
    (tmp_path / "revision.yaml").write_text(run("revisions", "export", "1")[1]["text"])
    exit_code, made = run(
        "revisions", "import", "--document", str(tmp_path / "revision.yaml"), "--reason", "copy"
    )
    assert exit_code == 0 and (made["number"], made["state"]) == (2, "imported")


def test_keys_are_made_used_and_revoked(run: Any, tmp_path: Path) -> None:
    _, made = run("keys", "create", "--name", "desk", "--scopes", "viewer", "--scopes", "inference")
    key = tmp_path / "desk.key"
    key.write_text(made["secret"])
    assert run("whoami", key=key)[1]["scopes"] == ["inference", "viewer"]
    exit_code, answer = run("engine", "drain", "--reason", "x", key=key)
    assert exit_code == 1 and answer["error"]["code"] == "wrong_scope"
    assert run("keys", "revoke", made["id"])[1]["revoked_at"]
    exit_code, answer = run("whoami", key=key)
    assert (exit_code, answer["error"]["code"]) == (1, "revoked_key")
    exit_code, report = run("audit-log", "verify")
    assert exit_code == 0 and report["is_intact"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("switches", "start", "--profile", "fast"), "--reason"),
        (("switches", "start", "--reason", "x"), "exactly one of profile and revision"),
        (("switches", "start", "--profile", "fast", "--reason", "x", "--mode", "fast"), "invalid choice"),
        (("switches", "canary", "sw-1", "--share", "2", "--reason", "x"), "less than 1"),
        (("revisions", "diff", "--before", "1"), "after"),
        (("events",), "--limit"),
        (("no-such-verb",), "invalid choice"),
        (("audits", "start", "--reason", "x", "--options", "[]"), "expected a JSON object"),
        (("audits", "start", "--reason", "x", "--options", "{"), "expected a JSON object"),
    ],
)
def test_a_wrong_call_is_exit_code_2(run: Any, words: tuple[str, ...], what: str) -> None:
    exit_code, answer = run(*words)
    assert exit_code == 2 and what in answer["error"]["message"]
    assert "specpilot admin" not in answer["error"]["message"]  # standard error has it in front


def test_what_is_missing_is_said(run: Any, tmp_path: Path) -> None:
    exit_code, answer = run("rounds", "list")
    assert exit_code == 1 and answer["error"]["code"] == "unavailable"
    exit_code, answer = run("whoami", key=tmp_path / "none.key")
    assert exit_code == 2 and "none.key" in answer["error"]["message"]
    assert "admin.key" in answer["error"]["message"] and "Errno" not in answer["error"]["message"]


def test_events_and_the_playground(run: Any, sidecar: LiveSidecar) -> None:
    assert [event["kind"] for event in run("events", "--limit", "1")[1]["events"]] == ["traffic"]
    gateway = ("--gateway-url", sidecar.url)
    exit_code, answer = run("playground", "compare", "hello", "--max-tokens", "2", *gateway)
    assert exit_code == 0 and answer["is_same_text"] and answer["stock"]["text"] == "word 0word 1"
    assert "OpenAI(" in run("playground", "compare", "hello", "--code", "python", *gateway)[1]["text"]


def test_lines_are_not_broken_and_items_are_told_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")  # too narrow for a table
    digest = "0123456789abcdef" * 20
    show_text(
        {
            "hash": digest,
            "engine": {"instances": [{"id": "a", "state": "ready"}, {"id": "b", "state": "failed"}]},
            "jobs": [
                {
                    "id": "j",
                    "result": {"passed": True, "picture": "<svg>\n</svg>", "verdict": {"a": {"b": 1}}},
                }
            ],
        }
    )
    shown = capsys.readouterr().out
    assert f"hash: {digest}\n" in shown
    assert "    - id: a\n      state: ready\n    - id: b\n      state: failed\n" in shown
    assert "passed yes, picture (2 lines, see --json), verdict a (1 entries, see --json)" in shown


def test_people_get_tables_or_blocks(
    sidecar: LiveSidecar, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--admin-url", sidecar.admin_url, "--key-file", str(key_file(sidecar))]
    for width in ("60", "400"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(["profiles", "list", *where]) == 0
        shown = capsys.readouterr().out
        assert all(name in shown for name in ("gpu: cpu", "fast", "slow-start", "broken"))
