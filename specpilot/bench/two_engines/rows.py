"""What :mod:`.sglang_box` wrote, read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpilot.errors import ConfigError

__all__ = ["EngineRun", "Row", "read_run"]


@dataclass(frozen=True)
class Row:
    """One answer of SGLang.

    Attributes
    ----------
    output_ids
        The answer.
    lengths
        Tokens of the answer after every chunk; with speculation a chunk is the prompt's or one verify step's.
    num_steps
        Verify steps, SGLang's own count; None in plain decoding.
    """

    id: str
    output_ids: tuple[int, ...]
    lengths: tuple[int, ...]
    num_steps: int | None


@dataclass(frozen=True)
class EngineRun:
    """All answers of one server, and the drafts of the answer that was probed."""

    rows: tuple[Row, ...]
    probed_answer: Row
    probed: tuple[dict[str, Any], ...]


def _row(values: dict[str, Any], name: str) -> Row:
    return Row(name, tuple(values["output_ids"]), tuple(values["lengths"]), values.get("spec_verify_ct"))


def read_run(path: Path) -> EngineRun:
    """Read one file; ConfigError for another format."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if not lines or lines[0].get("format_version") != 1:
        raise ConfigError(
            f"{path}: expected a run of format_version 1, as two_engines/sglang_box.py writes it"
        )
    head, *rows = lines
    return EngineRun(
        tuple(_row(row, row["id"]) for row in rows),
        _row(head["probed_answer"], "probed"),
        tuple(head["probed"]),
    )
