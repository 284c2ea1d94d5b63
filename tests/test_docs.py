"""The documents agree with the repository: what they name exists, and numbers say where they come from."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import REPO, tracked_files

README = (REPO / "README.md").read_text(encoding="utf-8")
MARKDOWN = [path for path in tracked_files() if path.suffix == ".md"]
MAX_SOURCE_LINES = 400
"""A module has one role; past this length it has several, and cannot be read at a sitting: split it."""

# Documents and code may link only to these hosts. Any other host belongs to one machine or one registry.
LINKED_HOSTS = {
    "127.0.0.1",
    "localhost",
    "appliance",  # a service of docker-compose.yml
    "arxiv.org",
    "docs.nvidia.com",
    "docs.python.org",
    "github.com",
    "huggingface.co",
    "json-schema.org",
    "keepachangelog.com",
    "llvm.org",
    "numba.readthedocs.io",
    "semver.org",
    "www.apache.org",
    "www.w3.org",  # the name space of SVG
}
MACHINE_PATH = re.compile(r"""(?<![\w.$}/-])/(?:home|root|Users|work|mnt|media|workspace)/[\w.-]+""")
URL_HOST = re.compile(r"""https?://(\[[0-9a-f:]*\]|[A-Za-z0-9.-]+)""")
INDEX_OPTION = re.compile(r"--(?:extra-)?index-url[= ]+https?:|--find-links[= ]+\S*/")
SPEED = re.compile(
    r"\d\s*(?:tok/s|tokens/s|GB/s|ms|us|µs|TFLOPS?)(?!\w)"
    r"|\d\s*(?:x|×|times)\s+(?:as fast|faster|the|AR|plain)\b"
    r"|\btau\s*(?:=|of|is|:)\s*\d",
)
MARK = re.compile(r"\b(?:measured|computed|quoted)\b", re.IGNORECASE)


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def mentioned_targets(text: str) -> set[str]:
    return set(re.findall(r"(?:`|^ {4}|^\$ |&& )make ([a-z][\w-]*)", text, re.MULTILINE))


def missing_paths(text: str, folders: list[Path]) -> list[str]:
    """Back-ticked words that look like repository paths and exist under none of ``folders``."""
    words = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", text)
    looks_like_path = re.compile(r"/|\.(?:py|md|toml|txt|ya?ml|json|cuh?|w12)$|^Makefile$|^Dockerfile$")
    return [
        word
        for word in words
        if looks_like_path.search(word)
        and not word.startswith(".venv/")
        and not any((folder / word).exists() for folder in folders)
    ]


def text_files() -> list[Path]:
    """Tracked files people write; data and weights are left out."""
    suffixes = {
        "",
        ".py",
        ".md",
        ".toml",
        ".txt",
        ".yml",
        ".yaml",
        ".json",
        ".cu",
        ".cuh",
        ".sh",
        ".cfg",
        ".jinja",
    }
    bundled = REPO / "specpilot" / "models" / "bundled"
    return [path for path in tracked_files() if path.suffix in suffixes and bundled not in path.parents]


def foreign_places(text: str) -> list[str]:
    """Absolute paths of one machine, URLs to unlisted hosts, and package index options."""
    hosts = [host for host in URL_HOST.findall(text) if host not in LINKED_HOSTS]
    return MACHINE_PATH.findall(text) + hosts + INDEX_OPTION.findall(text)


def unmarked_numbers(text: str) -> list[str]:
    """Paragraphs (or tables with their lead-in) that give speed or acceptance numbers and no source."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.split(r"\n\s*\n", prose)
    found = []
    for index, block in enumerate(blocks):
        scope = blocks[index - 1] + block if block.lstrip().startswith("|") and index else block
        if SPEED.search(block) and not MARK.search(scope):
            found.append(block.strip())
    return found


def test_readme_names_the_two_commands() -> None:
    assert {"serve", "test"} <= mentioned_targets(README)


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(REPO)))
def test_make_targets_named_in_documents_exist(path: Path) -> None:
    assert mentioned_targets(path.read_text(encoding="utf-8")) <= make_targets()


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(REPO)))
def test_files_named_in_documents_exist(path: Path) -> None:
    if path.name == "CHANGELOG.md":
        pytest.skip("a changelog may name files that are gone")
    assert missing_paths(path.read_text(encoding="utf-8"), [REPO, path.parent]) == []


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(REPO)))
def test_speed_numbers_say_where_they_come_from(path: Path) -> None:
    assert unmarked_numbers(path.read_text(encoding="utf-8")) == []


def readme_commands() -> list[list[str]]:
    lines = [line for block in code_blocks(README, "console") for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ specpilot ")]


@pytest.mark.parametrize("words", readme_commands(), ids=" ".join)
def test_commands_and_options_in_readme_exist(words: list[str]) -> None:
    # In a process of its own: a verb may replace the process it runs in.
    script = "import sys; from specpilot.cli import main; sys.exit(main())"
    verbs = [
        words[1],
        *(word for word in words[2:3] if words[1] != "admin" and word.isalpha() and word.islower()),
    ]
    command = [sys.executable, "-c", script, *verbs, "--help"]
    environment = {**os.environ, "COLUMNS": "200"}
    shown = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert shown.returncode == 0, shown.stderr
    for option in [word.split("=")[0] for word in words if word.startswith("--")]:
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown.stdout), f"no {option} in:\n{shown.stdout}"


def test_readme_shows_commands_and_a_python_example() -> None:
    assert readme_commands()
    (example,) = code_blocks(README, "python")
    ast.parse(example)
    assert len(example.splitlines()) <= 12


def test_no_machine_paths_or_registry_hosts() -> None:
    found = {
        str(path.relative_to(REPO)): places
        for path in text_files()
        if path != Path(__file__) and (places := foreign_places(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_source_files_are_short() -> None:
    sizes = {
        str(path.relative_to(REPO)): len(path.read_text(encoding="utf-8").splitlines())
        for path in tracked_files()
        if path.suffix in {".py", ".cu", ".cuh"}
    }
    assert {name: lines for name, lines in sizes.items() if lines > MAX_SOURCE_LINES} == {}


def test_the_version_has_a_changelog() -> None:
    changelog = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog and "keepachangelog.com" in changelog


def test_pins_of_sglang_hold() -> None:
    pins = (REPO / "constraints.txt").read_text(encoding="utf-8").split()
    assert "torch==2.13.0" in pins and "transformers==5.12.1" in pins
    assert not any(pin.startswith("torchvision") for pin in pins)


# The checks above must be able to fail.


def test_a_missing_target_is_found() -> None:
    assert "no-such" in mentioned_targets("run `make no-such`") - make_targets()
    assert "no-such" in mentioned_targets("text\n\n    make no-such\n") - make_targets()


def test_a_missing_file_is_found() -> None:
    text = "see `specpilot/no_such.py`, `README.md`, `specpilot/`, `client`, `/v1/models` and `no_such.md`"
    assert missing_paths(text, [REPO]) == ["specpilot/no_such.py", "no_such.md"]


@pytest.mark.parametrize(
    "text",
    [
        "cd /home/somebody/repository",
        'open("/root/data/x.json")',
        "see https://registry.example/simple/",
        "pip install --index-url https://127.0.0.1/simple torch",
    ],
)
def test_a_foreign_place_is_found(text: str) -> None:
    assert foreign_places(text)


def test_places_that_are_not_foreign_pass() -> None:
    assert (
        foreign_places(
            "GET http://127.0.0.1:8000/v1, https://arxiv.org/abs/1, WORKDIR /app, docs/root/x, a/home/b"
        )
        == []
    )


@pytest.mark.parametrize(
    "text", ["decodes 105 tok/s", "It is 1.9 x as fast.", "a tau of 4.2", "| a |\n|---|\n| 3 ms |"]
)
def test_an_unmarked_number_is_found(text: str) -> None:
    assert unmarked_numbers(f"Words.\n\n{text}\n\nMore words.")


def test_a_marked_number_passes() -> None:
    assert (
        unmarked_numbers("*Measured* on 2 cores: 105 tok/s.\n\nMeasured here:\n\n| a |\n|---|\n| 3 ms |\n")
        == []
    )
