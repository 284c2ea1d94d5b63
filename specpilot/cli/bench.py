"""``specpilot bench``: a drafter against plain decoding on a file of requests."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.bench.pairs import BenchOptions, run_pairs
from specpilot.bench.provenance import find_commit, find_versions, hash_chat_template
from specpilot.bench.requests import hash_requests, read_requests
from specpilot.bench.rows import ROW_VERSION, BenchSummary, summarise
from specpilot.cli.options import Chat, Json, MaxTokens, Mode, Model, Temperature, Threads, open_engine
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command("bench")(_bench)


def _bench(
    requests: Annotated[Path, typer.Option(help="JSON lines with 'prompt' or 'turns'.")],
    drafter: Annotated[str, typer.Option(help="Drafter to compare with plain decoding.")],
    model: Model = None,
    mode: Mode = "serve",
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many requests.")] = None,
    chat: Chat = True,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    seed: Annotated[int, typer.Option(help="Request i samples with seed + i.")] = 0,
    cut_loops: Annotated[
        bool,
        typer.Option("--cut-loops/--no-cut-loops", help="Count answers up to their first repeated 32-gram."),
    ] = True,
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Accept length, rates and speed-up. In judge mode, greedy answers that differ are a failure."""
    chosen = read_requests(requests, limit)
    options = BenchOptions(drafter, chat, max_tokens, temperature, seed, cut_loops)
    engine = open_engine(model, mode, num_threads)
    with progress_bar("bench", len(chosen)) as advance:
        results = run_pairs(engine, chosen, options, advance)
    summary = summarise(results, options)
    row: dict[str, Any] = {
        "row_version": ROW_VERSION,
        "commit": find_commit(),
        "versions": dict(find_versions()),
        "engine": asdict(engine.describe()),
        "requests": {"file": requests.name, "sha256": hash_requests(chosen)},
        "chat_template_sha256": hash_chat_template(engine),
        "options": asdict(options),
        **summary.as_json(),
    }
    if not json:
        _show(summary)
    must_be_equal = mode == "judge" and temperature == 0.0
    return Outcome(row, is_ok=not (must_be_equal and summary.num_diverged))


def _show(summary: BenchSummary) -> None:
    tau = "-" if summary.tau is None else f"{summary.tau:.3f}"
    print(f"tau {tau} over {summary.num_steps} steps of {summary.num_answers} answers")
    print(f"{summary.tok_s:.1f} tokens/s, plain {summary.ar_tok_s:.1f}: {summary.speedup_over_ar:.2f} x")
    print("accepted by position: " + " ".join(f"{share:.2f}" for share in summary.accept_by_position))
    print(
        f"answers that loop: {summary.loop_share:.0%}; answers that differ from plain: {summary.num_diverged}"
    )
