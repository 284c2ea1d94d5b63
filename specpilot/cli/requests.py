"""``specpilot requests``: build, show and split request sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.options import Json, Model
from specpilot.cli.outcome import Outcome
from specpilot.errors import ConfigError
from specpilot.requests.reading import BenchRequest, read_requests
from specpilot.requests.sets import RequestSet, build_set, read_set, write_set
from specpilot.requests.sources import bundled_requests, hash_tokenizer, stock_answer
from specpilot.requests.splits import Split, select_split

__all__ = ["add_to"]

_Sources = Annotated[
    list[Path] | None,
    typer.Argument(help="JSON lines files, or folders of them. Default: the repository's requests."),
]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Request sets: split, build, show.", rich_markup_mode=None)
    group.command("split")(_split)
    group.command("build")(_build)
    group.command("show")(_show)
    app.add_typer(group, name="requests")


def _split(sources: _Sources = None, json: Json = False) -> Outcome:
    """How many requests of each benchmark are development, how many sealed."""
    requests = _read(sources)
    splits: tuple[Split, ...] = ("development", "sealed")
    counts = {split: Counter(one.benchmark for one in select_split(requests, split)) for split in splits}
    rows = [
        {"benchmark": name} | {split: counts[split][name] for split in splits}
        for name in sorted({request.benchmark for request in requests})
    ]
    if not json:
        for row in rows:
            typer.echo(f"{row['benchmark']}: {row['development']} development, {row['sealed']} sealed")
    return Outcome({"benchmarks": rows})


def _build(
    out: Annotated[Path, typer.Option(help="File to write.")],
    sources: _Sources = None,
    split: Annotated[
        Split, typer.Option(help="Whose requests these are, and how long answers get.")
    ] = "development",
    model: Model = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="The chat template's switch. Default: the template's."),
    ] = None,
    turns: Annotated[
        bool,
        typer.Option(
            "--turns/--first-turn", help="Later turns follow the target's own answers, decoded plainly."
        ),
    ] = True,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many requests a benchmark.")] = None,
    answer_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of an answer inside a conversation.")
    ] = 256,
    json: Json = False,
) -> Outcome:
    """Turn requests into prompts of token ids, counted and hashed."""
    from specpilot.models.folders import model_folders
    from specpilot.refengine.tokenizer import ChatTokenizer

    if not out.parent.is_dir():
        raise ConfigError(f"out: got {out}, expected a file in a folder that is there")
    _, folder, _ = model_folders(None if model is None else str(model))
    tokenizer = ChatTokenizer.from_folder(folder)
    made = build_set(
        _read(sources),
        split,
        lambda messages: tokenizer.encode_chat(messages, thinking),
        tokenizer_sha256=hash_tokenizer(folder),
        thinking=thinking,
        answer=stock_answer(model, answer_tokens) if turns else None,
        num_requests=limit,
    )
    write_set(out, made)
    return _outcome(made, json)


def _show(path: Annotated[Path, typer.Argument(help="A request set.")], json: Json = False) -> Outcome:
    """Check a set and count its prompts and tokens."""
    return _outcome(read_set(path), json)


def _outcome(requests: RequestSet, is_json: bool) -> Outcome:
    report: dict[str, Any] = requests.summary()
    if not is_json:
        header = requests.header
        thinking = {None: "the template's", True: "on", False: "off"}[header.thinking]
        typer.echo(
            f"{header.split}: {header.num_prompts} prompts, answers up to {header.max_new_tokens} tokens"
        )
        typer.echo(f"thinking {thinking}; hash {header.prompts_sha256[:16]}")
        for name, row in report["benchmarks"].items():
            least, median, most = row["prompt_tokens_min_median_max"]
            typer.echo(f"{name}: {row['num_prompts']} prompts of {least} to {most} tokens, median {median:g}")
    return Outcome(report)


def _read(sources: list[Path] | None) -> list[BenchRequest]:
    if not sources:
        return bundled_requests()
    files = [
        file
        for source in sources
        for file in (sorted(source.glob("*.jsonl")) if source.is_dir() else [source])
    ]
    if not files:
        raise ConfigError(f"requests: found no .jsonl file in {', '.join(map(str, sources))}")
    return [request for file in files for request in read_requests(file)]
