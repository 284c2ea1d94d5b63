"""Request files: what is read, and how a bad line is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.errors import ConfigError
from specpilot.requests.reading import BenchRequest, hash_requests, read_requests


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "requests.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_prompts_turns_and_foreign_fields(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"id": "a/1", "prompt": "One?", "answer": "1"}\n\n{"turns": ["Two?", "Why?"], "answer": null}\r\n',
    )
    assert read_requests(path) == [BenchRequest("a/1", ("One?",)), BenchRequest("line-3", ("Two?", "Why?"))]
    assert read_requests(path, limit=1) == [BenchRequest("a/1", ("One?",))]


def test_other_line_separators_stay_in_the_text(tmp_path: Path) -> None:
    assert read_requests(write(tmp_path, '{"prompt": "a\u2028b"}'))[0].turns == ("a\u2028b",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no requests"),
        (b"\n \n", "no requests"),
        (b'{"prompt": "ok"}\nnot json\n', ":2"),
        (b'{"prompt": "ok"}\n["a"]\n', ":2"),
        (b'{"prompt": "a", "turns": ["b"]}', ":1"),
        (b'{"question": "a"}', ":1"),
        (b'{"prompt": ""}', ":1"),
        (b'{"prompt": 3}', ":1"),
        (b'{"turns": []}', ":1"),
        (b'{"turns": ["a", 2]}', ":1"),
        (b'{"turns": "a"}', ":1"),
        (b'{"prompt": "\\ud800"}', ":1"),
        (b'{"prompt": "\xff"}', "UTF-8 at byte 12"),
    ],
)
def test_bad_file_is_refused_with_its_place(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_requests(write(tmp_path, content))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        read_requests(tmp_path / "absent.jsonl")


def test_hash_is_of_the_turns_in_order() -> None:
    first, second = BenchRequest("1", ("a",)), BenchRequest("2", ("b", "c"))
    assert hash_requests([first, second]) == hash_requests([BenchRequest("x", ("a",)), second])
    assert hash_requests([first, second]) != hash_requests([second, first])
    assert hash_requests([BenchRequest("1", ("a", "b"))]) != hash_requests(
        [BenchRequest("1", ("a",)), BenchRequest("2", ("b",))]
    )
