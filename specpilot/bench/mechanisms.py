"""``python -m specpilot.bench.mechanisms --requests FOLDER --out TABLE.md``: what each mechanism gives here.

Three tables in Markdown. *Builders*: tau of every tree builder at N = 8, 16, 32 and 63 rows, root included, for every
drafter and set of requests, by exact replay over the builder's own steps (``specpilot replay``), with the drafter's
trained positions and with 15. *Two-level verification*: tokens per exact pass and rate with each copy and without.
*Batching*: all requests of a group at once, with each mechanism. The last two are live runs in serve mode.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from specpilot.bench.answer import Answer, decode_answer
from specpilot.bench.provenance import find_commit, find_versions
from specpilot.bench.record import record_requests
from specpilot.bench.rows import output_rate
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, BatchMechanisms, Builder, Mechanisms, QWeights
from specpilot.metrics import AcceptCounter
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot.replay.records import read_records
from specpilot.replay.report import replay_rows
from specpilot.requests.reading import BenchRequest, read_requests

__all__ = [
    "CONCURRENCY",
    "MORE_POSITIONS",
    "NODES",
    "Row",
    "batching_rows",
    "builder_rows",
    "main",
    "markdown_table",
    "two_level_rows",
]

NODES = (8, 16, 32, 63)
MORE_POSITIONS = 15
CONCURRENCY = 8

Row = dict[str, Any]


def builder_rows(
    engine: ReferenceEngine,
    sets: dict[str, list[BenchRequest]],
    drafters: Sequence[str],
    max_new_tokens: int,
    model: str | None = None,
) -> Iterator[Row]:
    """Tau by set, drafter, positions and builder at every N of ``NODES``; the oracle among the builders."""
    for name in drafters:
        drafter = engine.drafters[name]
        positions = [drafter.block_size - 1]
        if drafter.block_size - 1 < MORE_POSITIONS <= drafter.max_positions:
            positions.append(MORE_POSITIONS)
        for count in positions:
            for set_name, requests in sets.items():
                with tempfile.TemporaryDirectory() as folder:
                    place = Path(folder) / "records"
                    record_requests(engine, requests, [name], place, model, max_new_tokens, count)
                    steps = read_records([place])
                rows = replay_rows(steps, get_args(Builder), NODES)
                for builder in dict.fromkeys(row.builder for row in rows):
                    mine = {row.nodes: row for row in rows if row.builder == builder}
                    taus = {f"N = {n}": mine[n].tau for n in NODES}
                    yield {"drafter": name, "positions": count, "set": set_name, "builder": builder} | taus


def two_level_rows(
    engine: ReferenceEngine,
    requests: Sequence[BenchRequest],
    drafters: Sequence[str],
    num_nodes: int,
    max_new_tokens: int,
) -> Iterator[Row]:
    """One request at a time, best-first trees of ``num_nodes``: without a Q pass and with each copy."""
    copies: list[QWeights | None] = [None, *get_args(QWeights)]
    for name in drafters:
        one_level = Mechanisms("best_first", num_nodes)
        for copy in copies:
            mechanisms = replace(one_level, q_weights=copy)
            answers = [_answer(engine, request, name, mechanisms, max_new_tokens) for request in requests]
            steps = AcceptCounter(step for answer in answers for step in answer.steps)
            yield {
                "drafter": name,
                "Q pass": copy or "none",
                "tau": steps.tau,
                "tokens/s": output_rate(answers),
            }


def batching_rows(
    requests: Sequence[BenchRequest],
    drafter: str,
    num_nodes: int,
    max_new_tokens: int,
    model: str | None = None,
    concurrency: int = CONCURRENCY,
) -> Iterator[Row]:
    """Groups of requests at once. ``rows`` are the mean verified rows of a step and request."""
    tree = Mechanisms("best_first", num_nodes)
    free = Mechanisms("best_first")
    shared = BatchMechanisms(node_budget=num_nodes * concurrency)
    arms: list[tuple[str, str | None, Mechanisms, BatchMechanisms]] = [
        ("plain decoding", None, STOCK, BatchMechanisms()),
        ("chain", drafter, STOCK, BatchMechanisms()),
        (f"best-first, N = {num_nodes} each", drafter, tree, BatchMechanisms()),
        (f"shared budget of {num_nodes * concurrency}", drafter, free, shared),
        ("drafter blocks", drafter, tree, BatchMechanisms(has_drafter_blocks=True)),
        ("whole prompts up to 384", drafter, tree, BatchMechanisms(whole_prompt_rows=384)),
    ]
    group = (list(requests) * concurrency)[: max(concurrency, len(requests) // concurrency * concurrency)]
    for name, used, mechanisms, batch in arms:
        if batch.has_drafter_blocks and used is not None:
            mechanisms = replace(mechanisms, num_positions=None)
        engine = build_engine(model, mode="serve", max_running=concurrency, batch=batch)
        if batch.has_drafter_blocks and engine.drafters[drafter].max_positions < MORE_POSITIONS:
            continue
        _answer(engine, group[0], used, mechanisms, 16)
        began = time.perf_counter()
        with ThreadPoolExecutor(concurrency) as pool:
            answers = list(
                pool.map(lambda one: _answer(engine, one, used, mechanisms, max_new_tokens), group)  # noqa: B023
            )
        elapsed_s = time.perf_counter() - began
        steps = [step for answer in answers for step in answer.steps]
        yield {
            "mechanism": name,
            "tau": AcceptCounter(steps).tau,
            "rows": sum(step.num_rows for step in steps) / len(steps),
            "tokens/s": sum(answer.num_tokens for answer in answers) / elapsed_s,
        }


def _answer(
    engine: ReferenceEngine,
    request: BenchRequest,
    drafter: str | None,
    mechanisms: Mechanisms,
    max_new_tokens: int,
) -> Answer:
    ids = engine.apply_chat_template([{"role": "user", "content": request.turns[0]}])
    params = SamplingParams(max_new_tokens=max_new_tokens)
    return decode_answer(engine, GenerateRequest(ids, params, drafter, mechanisms=mechanisms)).before_loop()


def markdown_table(rows: Sequence[Row]) -> str:
    """Columns are the keys of the first row; numbers with two digits after the point."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [
            "-" if row[n] is None else f"{row[n]:.2f}" if isinstance(row[n], float) else str(row[n])
            for n in names
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=Path, nargs="+", required=True, help="JSON lines, a set each.")
    parser.add_argument("--limit", type=int, default=8, help="Requests of each set.")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--drafters", nargs="+", help="Default: all.")
    parser.add_argument("--tree-nodes", type=int, default=16, help="N of the live runs.")
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, required=True, help="Markdown; the same as JSON beside it.")
    options = parser.parse_args(arguments)
    sets = {path.stem: read_requests(path, options.limit) for path in options.requests}
    engine = build_engine(options.model, mode="serve", max_running=1)
    drafters = options.drafters or list(engine.drafters)
    mixed = [request for requests in zip(*sets.values(), strict=False) for request in requests][
        : options.limit
    ]
    parts: list[tuple[str, list[Row]]] = []
    for title, rows in (
        ("Builders", builder_rows(engine, sets, drafters, options.max_tokens, options.model)),
        (
            "Two-level verification",
            two_level_rows(engine, mixed, drafters, options.tree_nodes, options.max_tokens),
        ),
        (
            f"Batching, {CONCURRENCY} requests at once, {drafters[0]}",
            batching_rows(mixed, drafters[0], options.tree_nodes, options.max_tokens, options.model),
        ),
    ):
        made = []
        for row in rows:
            print(json.dumps(row), file=sys.stderr, flush=True)
            made.append(row)
        parts.append((title, made))
    versions = {"commit": find_commit(), "versions": dict(find_versions()), "num_requests": options.limit}
    text = "\n".join(f"### {title}\n\n{markdown_table(rows)}" for title, rows in parts)
    options.out.write_text(text, encoding="utf-8")
    report = versions | {"tables": {title: rows for title, rows in parts}}
    options.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
