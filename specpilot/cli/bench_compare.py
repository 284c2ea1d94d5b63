"""``specpilot bench compare``: AR, tuned stock, DDTree and a candidate, interleaved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.options import (
    BuilderName,
    Json,
    Mode,
    Model,
    Nodes,
    Positions,
    Threads,
    mechanisms_of,
    open_engine,
)
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar
from specpilot.errors import RequestError

__all__ = ["add_to"]


def add_to(group: typer.Typer) -> None:
    group.command("compare")(_compare)


def _compare(
    requests: Annotated[
        Path | None,
        typer.Option(
            help="A request set of `specpilot requests build`. Default: the repository's development half."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="At most so many requests a benchmark.")] = None,
    batch_sizes: Annotated[str, typer.Option(help="Requests in flight, comma separated.")] = "1",
    max_tokens: Annotated[
        int | None, typer.Option(min=2, help="Default: where the set's answers stop.")
    ] = None,
    drafter: Annotated[
        str | None, typer.Option(help="The candidate's drafter. Default: no candidate.")
    ] = None,
    builder: BuilderName = "best_first",
    nodes: Nodes = None,
    positions: Positions = None,
    stock_drafter: Annotated[str | None, typer.Option(help="Stock's drafter, if no profile says it.")] = None,
    stock_positions: Annotated[int | None, typer.Option(min=1, help="Positions of stock's chain.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Take the tuned stock that this profile records.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Tune stock first; the report has the block for the profile.")
    ] = False,
    ddtree_nodes: Annotated[int, typer.Option(min=2, help="Rows of DDTree's trees.")] = 16,
    url: Annotated[
        str | None, typer.Option(help="A SpecPilot server, in place of an engine in this process.")
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=URL of any OpenAI endpoint that knows return_token_ids; AR and stock are such names."
        ),
    ] = None,
    model: Model = None,
    mode: Mode = "serve",
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Output rates of all arms on the same requests, closed loop, laid out like the paper's tables 1 to 3."""
    from specpilot.bench.compare.arms import StockChoice, engine_arms, own_arms, server_arms
    from specpilot.bench.compare.run import blocks, run_arms
    from specpilot.bench.compare.sweep import find_stock, stock_block
    from specpilot.bench.compare.table import make_report, render
    from specpilot.bench.provenance import find_commit, find_versions
    from specpilot.profiles import load_profiles
    from specpilot.requests.sets import build_set, read_set
    from specpilot.requests.sources import bundled_requests

    sizes = _sizes(batch_sizes)
    if (arm and (url or drafter or sweep)) or (url and sweep):
        raise RequestError("compare: arms, url and sweep: got several, expected one of them")
    engine = open_engine(model, mode, num_threads, max_running=max(sizes))
    chosen = (
        build_set(bundled_requests(), "development", engine.apply_chat_template, tokenizer_sha256="bundled")
        if requests is None
        else read_set(requests)
    )
    chosen = chosen if limit is None else chosen.first(limit)
    most = max_tokens or chosen.header.max_new_tokens
    report: dict[str, Any] = {
        "commit": find_commit(),
        "versions": dict(find_versions()),
        "set": chosen.summary(),
    }
    stock = StockChoice(stock_drafter or engine.describe().default_drafter or "none", stock_positions)
    if profile is not None:
        recorded = load_profiles().find(profile).stock
        if recorded is None:
            raise RequestError(f"profile: {profile} records no tuned stock; make one with --sweep")
        stock = StockChoice(recorded.drafter, recorded.options.get("positions"))
    num_blocks = sum(len(blocks(chosen.prompts, max(2 * size, 4))) for size in sizes)
    if sweep:
        with progress_bar("sweep", num_blocks) as advance:
            stock, swept = find_stock(engine, chosen.prompts, sizes, most, advance)
        asked = f"{len(chosen.prompts)} requests, {most} tokens, batch sizes {batch_sizes}"
        source = (
            f"specpilot bench compare --sweep, {mode} mode, {asked}, commit {report['commit'] or 'unknown'}"
        )
        report["stock"] = stock_block(stock, swept, source)
    candidate = None if drafter is None else (drafter, mechanisms_of(builder, nodes, positions))
    if arm:
        arms = own_arms(arm)
    elif url:
        arms = server_arms(url, stock, candidate, ddtree_nodes)
    else:
        arms = engine_arms(engine, stock, candidate, ddtree_nodes)
    with progress_bar("compare", num_blocks) as advance:
        results = run_arms(arms, chosen.prompts, sizes, most, on_block_done=advance)
    report |= make_report(results, arms, sizes) | {"max_new_tokens": most, "mode": mode}
    if not json:
        typer.echo(render(report))
    return Outcome(report)


def _sizes(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise RequestError(f"batch-sizes: got {text!r}, expected numbers such as 1,4,8", param="batch_sizes")
    return sorted({int(word) for word in words})
