"""Splits and request sets: who gets which request, and that a set that was changed is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from specpilot.cli import main
from specpilot.errors import ConfigError
from specpilot.requests.reading import BenchRequest
from specpilot.requests.sets import RequestSet, build_set, read_set, write_set
from specpilot.requests.sources import bundled_requests
from specpilot.requests.splits import MAX_DEVELOPMENT, select_split


def render(messages: Sequence[dict[str, str]]) -> list[int]:
    return [len(message["content"]) for message in messages]


def made(**options: object) -> RequestSet:
    return build_set(bundled_requests(), "development", render, tokenizer_sha256="t", **options)  # type: ignore[arg-type]


def test_splits_are_disjoint_and_together_everything() -> None:
    requests = bundled_requests()
    halves = [{one.id for one in select_split(requests, split)} for split in ("development", "sealed")]
    assert halves[0] | halves[1] == {one.id for one in requests} and not halves[0] & halves[1]
    assert [len(half) for half in halves] == [20, 20]


def test_a_split_does_not_depend_on_order_and_stops_at_the_most() -> None:
    requests = [BenchRequest(f"r/{index}", ("text",), "r") for index in range(1000)]
    chosen = select_split(requests, "development")
    assert chosen == select_split(requests[::-1], "development")
    assert len(chosen) == MAX_DEVELOPMENT and len(select_split(requests, "sealed")) == 800


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([BenchRequest("a", ("x",))], "no benchmark"),
        ([BenchRequest("a", ("x",), "b"), BenchRequest("a", ("y",), "b")], "twice"),
        ([BenchRequest("a", ("x",), "b")], "two or more"),
    ],
)
def test_requests_that_cannot_be_split_are_refused(requests: list[BenchRequest], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        select_split(requests, "sealed")


def test_later_turns_hold_the_controls_answers() -> None:
    first, whole = made(), made(answer=lambda ids: "x" * 7)
    assert {prompt.turn for prompt in first.prompts} == {1}
    seconds = [prompt for prompt in whole.prompts if prompt.turn == 2]
    assert len(seconds) == 4 and all(prompt.prompt_ids[1] == 7 for prompt in seconds)
    assert first.header.max_new_tokens == 2048


def test_a_set_comes_back_as_it_was_written(tmp_path: Path) -> None:
    requests = made(thinking=True, num_requests=2)
    write_set(tmp_path / "set", requests)
    assert read_set(tmp_path / "set") == requests
    assert len(requests.first(1).prompts) == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:-1], "cut or changed"),
        (lambda rows: [*rows[:-1], rows[-1] | {"prompt_ids": [1]}], "cut or changed"),
        (lambda rows: [rows[0] | {"split": "sealed"}, *rows[1:]], "cut or changed"),
        (lambda rows: [rows[0] | {"max_new_tokens": 9}, *rows[1:]], "cut or changed"),
        (lambda rows: [rows[0] | {"tokenizer_sha256": "x"}, *rows[1:]], "cut or changed"),
        (lambda rows: [rows[0] | {"version": 1}, *rows[1:]], "version 1"),
        (lambda rows: [rows[0] | {"extra": 1}, *rows[1:]], "extra"),
        (lambda rows: [], "version None"),
    ],
)
def test_a_changed_set_is_refused(tmp_path: Path, change: object, words: str) -> None:
    path = tmp_path / "set"
    write_set(path, made())
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(json.dumps(row) for row in change(rows)), encoding="utf-8")  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words):
        read_set(path)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "sealed.jsonl")
    assert main(["requests", "build", "--split", "sealed", "--first-turn", "--out", out, "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert main(["requests", "build", "--first-turn", "--out", "/nosuch/x.jsonl"]) == 2
    assert main(["requests", "build", "--first-turn", "--out", str(tmp_path)]) == 2
    assert main(["requests", "show", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == built
    assert built["header"]["max_new_tokens"] == 4096 and built["header"]["num_prompts"] == 20
    assert main(["requests", "split", "--json"]) == 0
    assert {row["sealed"] for row in json.loads(capsys.readouterr().out)["benchmarks"]} == {4}
