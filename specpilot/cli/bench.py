"""``specpilot bench``: a drafter against plain decoding on a file of requests."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.bench.concurrency import run_concurrency
from specpilot.bench.demo_prompts import DEMO_PROMPTS
from specpilot.bench.pairs import BenchOptions, run_pairs
from specpilot.bench.provenance import find_commit, find_versions, hash_chat_template
from specpilot.bench.rows import ROW_VERSION, BenchSummary, summarise
from specpilot.cli import bench_compare
from specpilot.cli.options import (
    BuilderName,
    CertifiedHeadFlag,
    Chat,
    CostAware,
    DrafterBlocks,
    GdnFormName,
    Json,
    MaxTokens,
    Mode,
    Model,
    NodeBudget,
    Nodes,
    Positions,
    PromptRows,
    QGateFlag,
    QWeightsName,
    Temperature,
    Threads,
    WholePromptRows,
    batch_of,
    mechanisms_of,
    open_engine,
)
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar
from specpilot.engines.base import Engine, NumericMode
from specpilot.errors import RequestError
from specpilot.requests.reading import BenchRequest, hash_requests, read_requests

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(_bench)
    bench_compare.add_to(group)
    app.add_typer(group, name="bench")


def _bench(
    context: typer.Context,
    requests: Annotated[
        Path | None,
        typer.Option(help="JSON lines with 'prompt' or 'turns'. Default with --best: built-in prompts."),
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="Drafter to compare with plain decoding.")] = None,
    best: Annotated[
        bool,
        typer.Option("--best", help="Find drafter and mechanisms by measured cost, and compare these."),
    ] = False,
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
    concurrency: Annotated[
        int | None,
        typer.Option(min=2, max=64, help="Instead, compare so many requests at once with one at a time."),
    ] = None,
    builder: BuilderName = "chain",
    nodes: Nodes = None,
    positions: Positions = None,
    cost_aware: CostAware = False,
    gdn_form: GdnFormName = "path",
    q_weights: QWeightsName = None,
    q_gate: QGateFlag = False,
    certified_head: CertifiedHeadFlag = False,
    node_budget: NodeBudget = None,
    drafter_blocks: DrafterBlocks = False,
    whole_prompt_rows: WholePromptRows = 0,
    prompt_rows: PromptRows = None,
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome | None:
    """Accept length, rates and speed-up. In judge mode, greedy answers that differ are a failure."""
    if context.invoked_subcommand is not None:
        return None
    if best:
        is_plain = (builder, nodes, positions, cost_aware, gdn_form) == ("chain", None, None, False, "path")
        is_plain &= not (q_weights or q_gate or certified_head or node_budget or drafter_blocks)
        is_plain &= not (whole_prompt_rows or prompt_rows or concurrency or drafter or temperature) and chat
        if not is_plain or not cut_loops or seed:
            raise RequestError(
                "best: got options that it chooses itself, or does not use, expected none of them"
            )
        return _find_best(requests, limit, model, mode, max_tokens, num_threads, json)
    if requests is None or drafter is None:
        raise RequestError(
            "bench: got no requests or no drafter, expected --requests and --drafter, or --best"
        )
    chosen = read_requests(requests, limit)
    mechanisms = mechanisms_of(
        builder, nodes, positions, cost_aware, gdn_form, q_weights, q_gate, certified_head
    )
    batch = batch_of(node_budget, drafter_blocks, whole_prompt_rows, prompt_rows)
    options = BenchOptions(drafter, chat, max_tokens, temperature, seed, cut_loops, mechanisms, batch)
    engine = open_engine(
        model, mode, num_threads, max_running=concurrency or 1, batch=batch, has_step_costs=cost_aware
    )
    if concurrency is not None:
        return _compare_loads(engine, chosen, options, concurrency, json, requests.name)
    with progress_bar("bench", len(chosen)) as advance:
        results = run_pairs(engine, chosen, options, advance)
    summary = summarise(results, options)
    row = _provenance(engine, chosen, options, requests.name) | summary.as_json()
    if not json:
        _show(summary)
    must_be_equal = mode == "judge" and temperature == 0.0
    return Outcome(row, is_ok=not (must_be_equal and summary.num_diverged))


def _find_best(
    requests: Path | None,
    limit: int | None,
    model: Path | None,
    mode: NumericMode,
    max_tokens: int,
    num_threads: int | None,
    is_json: bool,
) -> Outcome:
    from specpilot.bench.best import find_best
    from specpilot.refengine.engine import ReferenceEngine

    chosen = [BenchRequest(f"demo-{n}", (prompt,)) for n, prompt in enumerate(DEMO_PROMPTS)]
    if requests is not None:
        chosen = read_requests(requests, limit)
    engine = open_engine(model, mode, num_threads)
    assert isinstance(engine, ReferenceEngine)
    report = find_best(engine, chosen, max_tokens, model, lambda stage: print(stage, file=sys.stderr))
    file_name = "built-in prompts" if requests is None else requests.name
    options = BenchOptions(report["best"]["drafter"], max_new_tokens=max_tokens)
    row = _provenance(engine, chosen, options, file_name) | report
    row["options"]["mechanisms"] = report["best"]["mechanisms"]
    if not is_json:
        found = report["best"]
        print(f"best: {found['drafter']} with {found['mechanisms']}")
        print(f"tau {found['tau']:.2f} and {found['mean_nodes']:.1f} rows a step by replay")
        low, high = report["speedup_interval"]
        print(
            f"{report['speedup_over_ar']:.2f} x plain decoding in {mode} mode, 95% interval {low:.2f} to {high:.2f}"
        )
    return Outcome(row)


def _provenance(
    engine: Engine, chosen: list[BenchRequest], options: BenchOptions, file_name: str
) -> dict[str, Any]:
    return {
        "row_version": ROW_VERSION,
        "commit": find_commit(),
        "versions": dict(find_versions()),
        "engine": asdict(engine.describe()),
        "requests": {"file": file_name, "sha256": hash_requests(chosen)},
        "chat_template_sha256": hash_chat_template(engine),
        "options": asdict(options),
    }


def _compare_loads(
    engine: Engine,
    chosen: list[BenchRequest],
    options: BenchOptions,
    concurrency: int,
    is_json: bool,
    file_name: str,
) -> Outcome:
    """In judge mode answers that differ in company are a failure."""
    summary = run_concurrency(engine, chosen, options, concurrency)
    if not is_json:
        for name, ratio in summary.ratio.items():
            alone, together = summary.alone_tok_s[name], summary.together_tok_s[name]
            print(
                f"{name}: {alone:.1f} tokens/s alone, {together:.1f} with {concurrency} at once: {ratio:.2f} x; "
                f"answers that differ: {summary.num_diverged[name]}"
            )
    must_be_equal = engine.describe().numeric_mode == "judge"
    row = _provenance(engine, chosen, options, file_name) | summary.as_json()
    return Outcome(row, is_ok=not (must_be_equal and any(summary.num_diverged.values())))


def _show(summary: BenchSummary) -> None:
    tau = "-" if summary.tau is None else f"{summary.tau:.3f}"
    print(f"tau {tau} over {summary.num_steps} steps of {summary.num_answers} answers")
    print(f"{summary.tok_s:.1f} tokens/s, plain {summary.ar_tok_s:.1f}: {summary.speedup_over_ar:.2f} x")
    print("accepted by position: " + " ".join(f"{share:.2f}" for share in summary.accept_by_position))
    print(
        f"answers that loop: {summary.loop_share:.0%}; answers that differ from plain: {summary.num_diverged}"
    )
