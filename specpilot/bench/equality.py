"""``python -m specpilot.bench.equality --requests SET ... --out REPORT.json``: do drafts or company change a token?

Every request is answered plainly and with every drafter, one at a time and several at once. In judge mode every answer
must have the plain one's ids. In serve mode first differences are listed with their margin, log p(argmax) - log p(other
token) in nats under teacher forcing, which says whether it was a near-tie. The accept lengths of the runs one at a time
are reported per set.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from specpilot.bench.answer import Answer, decode_answer
from specpilot.bench.provenance import find_commit, find_versions
from specpilot.engines.base import Engine, GenerateRequest, NumericMode, SamplingParams
from specpilot.forcing.departures import common_length, margin
from specpilot.metrics import AcceptCounter
from specpilot.models.build import build_engine
from specpilot.requests.reading import read_requests

__all__ = ["Difference", "answer_all", "compare_answers", "equality_report", "main"]

Difference = dict[str, Any]


def answer_all(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    drafter: str | None,
    max_new_tokens: int,
    concurrency: int,
) -> list[Answer]:
    """Greedy answers to all prompts, in their order, ``concurrency`` at a time."""
    params = SamplingParams(max_new_tokens=max_new_tokens)
    with ThreadPoolExecutor(concurrency) as pool:
        requests = [GenerateRequest(ids, params, drafter) for ids in prompts]
        return list(pool.map(lambda request: decode_answer(engine, request), requests))


def compare_answers(
    engine: Engine, prompts: Sequence[Sequence[int]], own: Sequence[Answer], other: Sequence[Answer]
) -> list[Difference]:
    """One entry for every pair of answers that part: request number, place, both tokens and the margin in nats."""
    found: list[Difference] = []
    for index, (prompt, a, b) in enumerate(zip(prompts, own, other, strict=True)):
        at = common_length(a.token_ids, b.token_ids)
        if at == len(a.token_ids) == len(b.token_ids):
            continue
        tokens = [answer.token_ids[at] if at < len(answer.token_ids) else None for answer in (a, b)]
        nats = None
        if tokens[0] is not None and tokens[1] is not None:
            nats = round(margin(engine, [*prompt, *a.token_ids[:at]], tokens[1]), 6)
        found.append({"request": index, "at": at, "own": tokens[0], "other": tokens[1], "margin_nats": nats})
    return found


def equality_report(
    engine: Engine, sets: dict[str, list[list[int]]], max_new_tokens: int, concurrency: int
) -> dict[str, Any]:
    """Differences of every arm from plain decoding one at a time, and accept lengths by set; sets hold prompt ids."""
    prompts = [ids for group in sets.values() for ids in group]
    plain = answer_all(engine, prompts, None, max_new_tokens, 1)
    arms: dict[str, Any] = {}
    tau: dict[str, dict[str, float | None]] = {}
    for drafter in (None, *engine.describe().drafters):
        name = drafter or "plain"
        for size in (1, concurrency):
            answers = plain if drafter is None and size == 1 else None
            answers = answers or answer_all(engine, prompts, drafter, max_new_tokens, size)
            found = compare_answers(engine, prompts, plain, answers)
            arms[f"{name} x{size}"] = {
                "num_answers": len(answers),
                "num_different": len(found),
                "differences": found,
            }
            print(f"{name} x{size}: {len(found)} of {len(answers)} differ", file=sys.stderr, flush=True)
            if drafter is not None and size == 1:
                tau[name] = _tau_by_set(sets, answers)
    return {
        "format_version": 1,
        "numeric_mode": engine.describe().numeric_mode,
        "num_prompts": len(prompts),
        "num_tokens": sum(len(answer.token_ids) for answer in plain),
        "concurrency": concurrency,
        "max_new_tokens": max_new_tokens,
        "arms": arms,
        "tau": tau,
        "loop_share": _loops_by_set(sets, plain),
    }


def _by_set(sets: dict[str, list[list[int]]], answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    groups, first = {}, 0
    for name, group in sets.items():
        groups[name] = list(answers[first : first + len(group)])
        first += len(group)
    return groups


def _tau_by_set(sets: dict[str, list[list[int]]], answers: Sequence[Answer]) -> dict[str, float | None]:
    """Answers count up to their loop."""
    return {
        name: AcceptCounter(step for answer in group for step in answer.before_loop().steps).tau
        for name, group in _by_set(sets, answers).items()
    }


def _loops_by_set(sets: dict[str, list[list[int]]], answers: Sequence[Answer]) -> dict[str, float]:
    return {
        name: sum(answer.loop_start is not None for answer in group) / len(group)
        for name, group in _by_set(sets, answers).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=Path, nargs="+", required=True, help="JSON lines; first turns are asked."
    )
    parser.add_argument("--limit", type=int, default=40, help="Requests of each file.")
    parser.add_argument("--mode", choices=("judge", "serve"), default="judge")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    mode: NumericMode = arguments.mode
    engine = build_engine(arguments.model, mode=mode, max_running=arguments.concurrency)
    sets = {
        path.stem: [
            engine.apply_chat_template([{"role": "user", "content": request.turns[0]}])
            for request in read_requests(path, arguments.limit)
        ]
        for path in arguments.requests
    }
    report = equality_report(engine, sets, arguments.max_tokens, arguments.concurrency)
    arguments.out.write_text(
        json.dumps(report | {"commit": find_commit(), "versions": dict(find_versions())}, indent=1) + "\n",
        encoding="utf-8",
    )
    num_different = sum(arm["num_different"] for arm in report["arms"].values())
    print(json.dumps({"num_different": num_different, "tau": report["tau"]}))
    # Judge mode promises equality; serve mode reports.
    sys.exit(1 if mode == "judge" and num_different else 0)


if __name__ == "__main__":
    main()
