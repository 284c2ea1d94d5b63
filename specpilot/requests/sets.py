"""A request set: prompts as token ids, ready to be sent to any engine, with what they were made from.

File format, version 2: UTF-8 JSON lines. The first line is the header (:class:`SetHeader`), every other one a prompt
(:class:`Prompt`). The header counts prompts and hashes them with all else it says (version
1: without), so a file that was cut or edited is refused.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from specpilot.errors import ConfigError
from specpilot.requests.reading import BenchRequest, hash_requests
from specpilot.requests.splits import MAX_NEW_TOKENS, Split, select_split

__all__ = [
    "FORMAT",
    "VERSION",
    "AnswerText",
    "Prompt",
    "Render",
    "RequestSet",
    "SetHeader",
    "build_set",
    "read_set",
    "write_set",
]

FORMAT: Final = "specpilot-requests"
VERSION: Final = 2

Render = Callable[[Sequence[dict[str, str]]], list[int]]
AnswerText = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Prompt:
    """One thing to ask. ``turn`` counts from 1; a later turn holds the control's answers to those before it."""

    id: str
    benchmark: str
    turn: int
    prompt_ids: tuple[int, ...]

    @property
    def key(self) -> str:
        """Unique within a set."""
        return f"{self.id}#{self.turn}"


@dataclass(frozen=True)
class SetHeader:
    """What a set is.

    Attributes
    ----------
    max_new_tokens
        Where answers stop.
    thinking
        The chat template's switch; None where it was left at the template's default.
    tokenizer_sha256
        Of the tokenizer's definition and template: ids mean nothing under another one.
    source_sha256
        Of the texts.
    prompts_sha256
        Of the prompts and of this header but ``num_prompts``.
    """

    split: Split
    max_new_tokens: int
    thinking: bool | None
    tokenizer_sha256: str
    source_sha256: str
    prompts_sha256: str
    num_prompts: int
    format: str = FORMAT
    version: int = VERSION


@dataclass(frozen=True)
class RequestSet:
    header: SetHeader
    prompts: tuple[Prompt, ...]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return tuple(sorted({prompt.benchmark for prompt in self.prompts}))

    def first(self, num_requests: int) -> RequestSet:
        """A smaller set: the first so many prompts of each benchmark."""
        kept = [
            prompt
            for name in self.benchmarks
            for prompt in [one for one in self.prompts if one.benchmark == name][:num_requests]
        ]
        return _with_prompts(self.header, kept)

    def summary(self) -> dict[str, Any]:
        """Counts a benchmark: prompts, and prompt tokens in all, least, median and most."""
        counts = {}
        for name in self.benchmarks:
            lengths = [len(prompt.prompt_ids) for prompt in self.prompts if prompt.benchmark == name]
            counts[name] = {
                "num_prompts": len(lengths),
                "prompt_tokens": sum(lengths),
                "prompt_tokens_min_median_max": [min(lengths), statistics.median(lengths), max(lengths)],
            }
        return {"header": asdict(self.header), "benchmarks": counts}


def build_set(
    requests: Sequence[BenchRequest],
    split: Split,
    render: Render,
    *,
    tokenizer_sha256: str,
    thinking: bool | None = None,
    answer: AnswerText | None = None,
    num_requests: int | None = None,
) -> RequestSet:
    """Choose a split and turn it into prompts.

    Parameters
    ----------
    render
        Chat messages to prompt ids, with ``thinking`` already applied.
    answer
        The control's answer, as text, to a prompt; later turns of a conversation follow it. None: first turns only.
    num_requests
        At most so many of each benchmark.
    """
    chosen = select_split(requests, split)
    if num_requests is not None:
        chosen = [
            one
            for name in sorted({one.benchmark for one in chosen})
            for one in [other for other in chosen if other.benchmark == name][:num_requests]
        ]
    prompts = []
    for request in chosen:
        messages: list[dict[str, str]] = []
        for turn, text in enumerate(request.turns, start=1):
            messages.append({"role": "user", "content": text})
            ids = render(messages)
            prompts.append(Prompt(request.id, request.benchmark, turn, tuple(ids)))
            if answer is None or turn == len(request.turns):
                break
            messages.append({"role": "assistant", "content": answer(ids)})
    header = SetHeader(split, MAX_NEW_TOKENS[split], thinking, tokenizer_sha256, hash_requests(chosen), "", 0)
    return _with_prompts(header, prompts)


def write_set(path: Path, requests: RequestSet) -> None:
    rows: list[dict[str, Any]] = [asdict(requests.header), *(asdict(prompt) for prompt in requests.prompts)]
    text = "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"request set: cannot write {path}: {error.strerror}") from None


def read_set(path: Path) -> RequestSet:
    """Read and check a file.

    Raises
    ------
    ConfigError
        It is no request set, of another version, cut, or changed since it was made.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except OSError as error:
        raise ConfigError(f"request set: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"request set: {path} is not UTF-8 JSON lines: {error}") from None
    head = rows[0] if rows and isinstance(rows[0], dict) else {}
    if (head.get("format"), head.get("version")) != (FORMAT, VERSION):
        raise ConfigError(
            f"request set: {path}: got format {head.get('format')!r} version {head.get('version')!r}, "
            f"expected {FORMAT!r} {VERSION}; build it anew with this release"
        )
    try:
        header = SetHeader(**head)
        prompts = tuple(Prompt(**(row | {"prompt_ids": tuple(row["prompt_ids"])})) for row in rows[1:])
    except (TypeError, KeyError) as error:
        raise ConfigError(f"request set: {path}: unknown or missing field: {error}") from None
    found = _with_prompts(header, prompts).header
    if found != header:
        raise ConfigError(
            f"request set: {path}: got {found.num_prompts} {header.split} prompts of hash "
            f"{found.prompts_sha256[:12]}, its header says {header.num_prompts} of {str(header.prompts_sha256)[:12]}; "
            "the file was cut or changed, build it anew"
        )
    return RequestSet(header, prompts)


def _with_prompts(header: SetHeader, prompts: Sequence[Prompt]) -> RequestSet:
    keys = {prompt.key for prompt in prompts}
    if not prompts or len(keys) != len(prompts) or not all(prompt.prompt_ids for prompt in prompts):
        raise ConfigError(f"request set: got {len(prompts)} prompts, expected some, none empty, none twice")
    covered = {
        name: value for name, value in asdict(header).items() if name not in ("prompts_sha256", "num_prompts")
    }
    rows = [[one.key, one.benchmark, list(one.prompt_ids)] for one in prompts]
    text = json.dumps([covered, rows], sort_keys=True, separators=(",", ":"))
    counted = {"prompts_sha256": hashlib.sha256(text.encode()).hexdigest(), "num_prompts": len(prompts)}
    return RequestSet(SetHeader(**(asdict(header) | counted)), tuple(prompts))
