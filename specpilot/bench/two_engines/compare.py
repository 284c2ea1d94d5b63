"""``python -m specpilot.bench.two_engines.compare --prompts P --runs DIR --out REPORT.json``: the report.

``DIR`` holds ``plain.jsonl`` and one file for every drafter, named after it, as :mod:`.sglang_box` wrote them.

- *Divergence*: the first token where SGLang's plain answer leaves the reference engine's (judge mode), and how much
  less likely the reference engine finds SGLang's token there than its own: the margin, in nats.
- *Accept length*: SGLang's verify steps against the reference engine's on the same prompts: over SGLang's own answers,
  which the reference engine's drafter follows teacher forced; over the part before the two engines' answers differ; and
  over whole answers, whose texts are not the same once they have parted. The difference with a 95% interval from
  resampling prompts in pairs.
- *Drafts*: the first steps of one answer, SGLang's numbers against the reference engine's at the same places.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from specpilot.bench.two_engines.drafts import compare_drafts
from specpilot.bench.two_engines.reference import Answer, answer, steps_along
from specpilot.bench.two_engines.rows import EngineRun, Row, read_run
from specpilot.forcing.departures import common_length, margin
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

__all__ = [
    "MAX_RUNNING",
    "NUM_RESAMPLES",
    "compare",
    "divergence",
    "main",
    "paired_ratio",
    "steps_within",
]

NUM_RESAMPLES = 10_000
MAX_RUNNING = 8


def steps_within(lengths: Sequence[int], end: int) -> tuple[int, int]:
    """(tokens, steps) of the verify steps that end within the first ``end`` tokens; the prompt's token is none."""
    inside = [length for length in lengths if length <= end]
    return (inside[-1] - inside[0], len(inside) - 1) if len(inside) > 1 else (0, 0)


def paired_ratio(
    ours: Sequence[tuple[int, int]], theirs: Sequence[tuple[int, int]], seed: int = 0
) -> dict[str, Any]:
    """tau of both engines, and theirs over ours less 1 with a 95% interval; (tokens, steps) for every prompt."""
    a, b = np.array(ours, float), np.array(theirs, float)
    draw = np.random.default_rng(seed).integers(0, len(a), (NUM_RESAMPLES, len(a)))
    ratios = (b[draw, 0].sum(1) / b[draw, 1].sum(1)) / (a[draw, 0].sum(1) / a[draw, 1].sum(1)) - 1
    tau_a, tau_b = a[:, 0].sum() / a[:, 1].sum(), b[:, 0].sum() / b[:, 1].sum()
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {
        "tau_reference": round(tau_a, 4),
        "tau_sglang": round(tau_b, 4),
        "difference": round(tau_b / tau_a - 1, 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "num_steps": [int(a[:, 1].sum()), int(b[:, 1].sum())],
    }


def divergence(
    engine: ReferenceEngine, prompt_ids: Sequence[int], ours: Answer, theirs: Row
) -> dict[str, Any] | None:
    """Where and by what margin SGLang's answer first leaves the reference engine's; None if it does not."""
    at = common_length(ours.output_ids, theirs.output_ids)
    if at == min(len(ours.output_ids), len(theirs.output_ids)):
        return None
    token = theirs.output_ids[at]
    nats = margin(engine, [*prompt_ids, *ours.output_ids[:at]], token)
    return {
        "id": theirs.id,
        "at": at,
        "reference": ours.output_ids[at],
        "sglang": token,
        "margin_nats": round(nats, 6),
    }


def compare(
    prompts: list[dict[str, Any]], runs: dict[str, EngineRun], engine: ReferenceEngine
) -> dict[str, Any]:
    """The report; ``runs`` by drafter, ``plain`` without one."""
    report: dict[str, Any] = {"format_version": 1, "num_prompts": len(prompts), "drafters": {}}
    names = [name for name in runs if name != "plain"]
    pairs: dict[str, list[list[tuple[int, int]]]] = {name: [[], [], [], [], []] for name in names}
    sizes = [len(row.output_ids) for row in runs["plain"].rows]

    def ask(name: str | None) -> list[Answer]:
        """All prompts, several at once: in judge mode an answer does not depend on its company."""
        with ThreadPoolExecutor(MAX_RUNNING) as pool:
            jobs = zip(prompts, sizes, strict=False)
            answers = list(pool.map(lambda job: answer(engine, job[0]["prompt_ids"], name, job[1]), jobs))
        print(f"{name or 'plain'}: {len(answers)} answers", file=sys.stderr, flush=True)
        return answers

    plain = ask(None)
    found = [
        divergence(engine, prompt["prompt_ids"], ours, theirs)
        for prompt, ours, theirs in zip(prompts, plain, runs["plain"].rows, strict=False)
    ]
    divergences = [entry for entry in found if entry is not None]
    num_tokens = sum(len(ours.output_ids) for ours in plain)
    for name in names:
        for ours, drafted, row, prompt in zip(plain, ask(name), runs[name].rows, prompts, strict=False):
            if drafted.output_ids != ours.output_ids:
                raise AssertionError(
                    f"{prompt['id']}: {name} changes the reference engine's own ids in judge mode"
                )
            size, common = len(drafted.output_ids), common_length(drafted.output_ids, row.output_ids)
            whole_ours, whole_theirs, part_ours, part_theirs, along = pairs[name]
            given = steps_along(engine, name, prompt["prompt_ids"], row.output_ids)
            along.append(steps_within(given.lengths, size))
            whole_ours.append(steps_within(drafted.lengths, size))
            whole_theirs.append(steps_within(row.lengths, size))
            part_ours.append(steps_within(drafted.lengths, common))
            part_theirs.append(steps_within(row.lengths, common))
    margins = [row["margin_nats"] for row in divergences]
    report["plain"] = {
        "num_tokens": num_tokens,
        "num_diverged": len(divergences),
        "largest_margin_nats": max(margins, default=0.0),
        "divergences": divergences,
    }
    for name in names:
        whole_ours, whole_theirs, part_ours, part_theirs, along = pairs[name]
        steps = [row.num_steps for row in runs[name].rows[: len(prompts)]]
        report["drafters"][name] = {
            "along_sglang_answers": paired_ratio(along, whole_theirs),
            "whole_answers": paired_ratio(whole_ours, whole_theirs),
            "before_divergence": paired_ratio(part_ours, part_theirs),
            "chunks_are_steps": steps == [row_steps for _, row_steps in whole_theirs],
            "drafts": compare_drafts(engine, name, prompts[0]["prompt_ids"], runs[name]),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="Only the first prompts.")
    arguments = parser.parse_args()
    prompts = [json.loads(line) for line in arguments.prompts.read_text(encoding="utf-8").splitlines()]
    runs = {path.stem: read_run(path) for path in sorted(arguments.runs.glob("*.jsonl"))}
    report = compare(prompts[: arguments.limit], runs, build_engine(mode="judge", max_running=MAX_RUNNING))
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: part for name, part in report.items() if name != "plain"}))


if __name__ == "__main__":
    main()
