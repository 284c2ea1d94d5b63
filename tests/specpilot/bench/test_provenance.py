"""What a row says about where it came from."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import specpilot
from specpilot.bench.provenance import find_commit, find_versions, hash_chat_template
from tests.service.tiny_engine import TinyEngine


def test_commit_is_the_checkouts_or_nothing() -> None:
    commit = find_commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}(\+dirty)?", commit)


def test_commit_of_a_foreign_repository_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "specpilot"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "foreign")
    monkeypatch.setattr(specpilot, "__file__", str(package / "__init__.py"))
    assert find_commit() is None
    git("add", "site-packages")
    git("commit", "-q", "-m", "now it is tracked")
    commit = find_commit()
    assert commit is not None and not commit.endswith("+dirty")
    (package / "new.py").write_text("")
    assert find_commit() == f"{commit}+dirty"


def test_versions_name_what_computes() -> None:
    assert {"specpilot", "python", "torch"} <= find_versions().keys()


def test_template_hash_sees_a_changed_template() -> None:
    class Other(TinyEngine):
        def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
            return [*super().apply_chat_template(messages), 10]

    assert hash_chat_template(TinyEngine()) == hash_chat_template(TinyEngine()) != hash_chat_template(Other())
