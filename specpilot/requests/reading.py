"""Benchmark requests from JSON lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specpilot.errors import ConfigError

__all__ = ["BenchRequest", "hash_requests", "read_requests"]


@dataclass(frozen=True)
class BenchRequest:
    """User turns in order; each but the first is asked after the answer to the one before."""

    id: str
    turns: tuple[str, ...]
    benchmark: str = ""


def read_requests(path: Path, limit: int | None = None) -> list[BenchRequest]:
    """Requests of a UTF-8 file, one JSON object a line with ``prompt`` (text) or ``turns`` (list of texts).

    ``id`` and ``benchmark`` are optional, other fields are ignored (data sets carry answers and sources). Lines end at
    ``\\n`` only: texts may hold other line separators. Empty lines are skipped.

    Raises
    ------
    ConfigError
        With file and line, for everything else.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise ConfigError(f"requests: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"requests: {path} is not UTF-8 at byte {error.start}") from None
    requests: list[BenchRequest] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            requests.append(_parse(line, f"{path}:{number}", default_id=f"line-{number}"))
        if limit is not None and len(requests) == limit:
            break
    if not requests:
        raise ConfigError(f"requests: {path} has no requests, expected JSON lines with 'prompt' or 'turns'")
    return requests


def hash_requests(requests: Sequence[BenchRequest]) -> str:
    """SHA-256 of the turns in order; ids do not count."""
    text = json.dumps(
        [list(request.turns) for request in requests], ensure_ascii=False, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _parse(line: str, place: str, default_id: str) -> BenchRequest:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"requests: {place}: not JSON: {error}") from None
    if not isinstance(row, dict) or ("prompt" in row) == ("turns" in row):
        raise ConfigError(f"requests: {place}: expected an object with either 'prompt' or 'turns'")
    turns = [row["prompt"]] if "prompt" in row else row["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise ConfigError(f"requests: {place}: got {turns!r}, expected non-empty text")
    try:
        "".join(turns).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"requests: {place}: the text has a lone surrogate, which no tokenizer takes"
        ) from None
    return BenchRequest(str(row.get("id", default_id)), tuple(turns), str(row.get("benchmark", "")))
