"""``specpilot demo``: the built-in prompts, plainly and speculatively."""

from __future__ import annotations

from typing import Any

import typer

from specpilot.bench.demo import num_answers, run_demo
from specpilot.bench.demo_prompts import DEMO_PROMPTS
from specpilot.bench.provenance import find_commit, find_versions
from specpilot.cli.options import (
    BuilderName,
    CostAware,
    Json,
    MaxTokens,
    Model,
    Nodes,
    Positions,
    Threads,
    mechanisms_of,
    open_engine,
)
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command("demo")(_demo)


def _demo(
    model: Model = None,
    max_tokens: MaxTokens = 128,
    builder: BuilderName = "chain",
    nodes: Nodes = None,
    positions: Positions = None,
    cost_aware: CostAware = False,
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Show equal ids (judge mode) and the speed-up (serve mode); exit code 0 only with equal ids."""
    # One form of Gated DeltaNet for both engines: judge mode has the path form alone.
    mechanisms = mechanisms_of(builder, nodes, positions, cost_aware, "path")
    judge, serve = (
        open_engine(model, "judge", num_threads, has_step_costs=cost_aware),
        open_engine(model, "serve", num_threads, has_step_costs=cost_aware),
    )
    total = num_answers(len(DEMO_PROMPTS), len(judge.describe().drafters))
    with progress_bar("demo", total) as advance:
        report = run_demo(judge, serve, DEMO_PROMPTS, max_tokens, advance, mechanisms)
    report |= {"commit": find_commit(), "versions": dict(find_versions())}
    if not json:
        _show(report)
    return Outcome(report, is_ok=report["ids_equal"])


def _show(report: dict[str, Any]) -> None:
    print(f"ids equal in judge mode: {'yes' if report['ids_equal'] else 'NO'}")
    print(f"plain decoding: {report['plain']['tok_s']:.1f} tokens/s")
    for name, speed in report["drafters"].items():
        tau = "-" if speed["tau"] is None else f"{speed['tau']:.2f}"
        gain = f"{speed['speedup_over_ar']:.2f} x plain, tau {tau}"
        print(f"{name}: {speed['tok_s']:.1f} tokens/s, {gain}")
    departed = report["serve"]["first_divergences"]
    print(
        f"serve mode departs from judge mode in {len(departed)} of {report['serve']['num_answers']} answers"
    )
    for place in departed:
        margin = "-" if place["margin_nats"] is None else f"{place['margin_nats']:.2e} nats"
        where = f"prompt {place['prompt_index']}, {place['drafter']}, token {place['position']}"
        print(f"  {where}: margin {margin}")
