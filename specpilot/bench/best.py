"""The best combination of mechanisms for one request on this machine: screened by replay, chosen and timed by decoding.

1. Time whole steps of the engine by rows, for every drafter (:mod:`specpilot.refengine.step_costs`).
2. Record the lattices of every drafter at every position of some answers (:mod:`specpilot.replay.every_position`).
3. Replay every builder at every N, and best-first trees that stop by cost: tokens of a step and rows. Tokens a second
   are tau over the time of a step of so many rows. This only screens.
4. Decode with the best few, and with the first of them in the forms that replay cannot tell apart (certified head, WY
   form, two levels), in turns with plain decoding; keep the one with the largest speed-up.
5. Time it against plain decoding of the same numeric mode on requests that took no part in the choice.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specpilot.bench.answer import Answer, decode_answer
from specpilot.bench.pairs import BenchOptions, run_pairs
from specpilot.bench.record import record_requests
from specpilot.bench.rows import output_rate, speedup_interval, summarise
from specpilot.draft.builders import make_builder
from specpilot.draft.step_cost import StepCost
from specpilot.engines.base import SamplingParams
from specpilot.engines.mechanisms import Builder, Mechanisms
from specpilot.errors import ConfigError, RequestError, Unsupported
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.step_costs import measure_step_costs
from specpilot.replay.records import ReplayStep, read_records
from specpilot.replay.selection import replay_builder
from specpilot.requests.reading import BenchRequest

__all__ = ["Candidate", "choose_best", "find_best", "rank_candidates"]

_NODES = (3, 4, 6, 8, 10, 12, 16, 24, 32)
_BUILDERS: tuple[Builder, ...] = ("chain", "best_first", "ddtree", "eagle2")
_COST_AWARE_NODES = (8, 16, 32)
_MORE_POSITIONS = 15
_FINALISTS = 4


@dataclass(frozen=True)
class Candidate:
    """One way to decode.

    Attributes
    ----------
    tau, mean_nodes
        By replay, over the builder's own steps.
    step_us
        What the engine's steps of so many rows took.
    tok_s
        ``tau / step_us``, in tokens a second: the estimate that screens, prompts left out.
    """

    drafter: str
    mechanisms: Mechanisms
    tau: float
    mean_nodes: float
    step_us: float
    tok_s: float


def find_best(
    engine: ReferenceEngine,
    requests: Sequence[BenchRequest],
    max_new_tokens: int,
    model: str | Path | None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> dict[str, Any]:
    """Choose on every other request, time on the rest: the report as a JSON object.

    The engine keeps the step costs that were measured, by which its cost-aware trees stop.
    """
    if len(requests) < 2:
        raise ConfigError(
            f"requests: got {len(requests)}, expected at least 2: some to choose on, others to time"
        )
    chosen_on, timed_on = requests[::2], requests[1::2]
    ranked = rank_candidates(engine, chosen_on, max_new_tokens, model, on_stage)
    on_stage("timing the best of them")
    finalists = choose_best(engine, chosen_on, _finalists(ranked), max_new_tokens)
    best = finalists[0][1]
    on_stage("timing against plain decoding")
    options = BenchOptions(best.drafter, max_new_tokens=max_new_tokens, mechanisms=best.mechanisms)
    pairs = run_pairs(engine, timed_on, options)
    summary = summarise(pairs, options)
    return {
        "speedup_over_ar": summary.speedup_over_ar,
        "speedup_interval": speedup_interval(pairs, options),
        "best": asdict(best),
        "finalists": [asdict(one) | {"measured_speedup": measured} for measured, one in finalists],
        "ranking": [asdict(one) for one in ranked[:20]],
        "num_candidates": len(ranked),
        "num_chosen_on": len(chosen_on),
        "step_costs": {name: asdict(cost) for name, cost in (engine.step_costs or {}).items()},
        "summary": summary.as_json(),
    }


def rank_candidates(
    engine: ReferenceEngine,
    requests: Sequence[BenchRequest],
    max_new_tokens: int,
    model: str | Path | None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> list[Candidate]:
    """All candidates, the one with the most tokens a second by the estimate first."""
    on_stage("timing steps")
    engine.step_costs = trained = measure_step_costs(engine.target, engine.drafters)
    costs = {(name, drafter.block_size - 1): trained[name] for name, drafter in engine.drafters.items()}
    longer = {
        name: drafter
        for name, drafter in engine.drafters.items()
        if drafter.block_size - 1 < _MORE_POSITIONS <= drafter.max_positions
    }
    for name, cost in measure_step_costs(engine.target, longer, _MORE_POSITIONS).items():
        costs[name, _MORE_POSITIONS] = cost
    candidates: list[Candidate] = []
    with tempfile.TemporaryDirectory() as folder:
        for (name, count), cost in costs.items():
            on_stage(f"recording and replaying {name}, {count} positions")
            place = Path(folder) / f"{name}-{count}"
            record_requests(engine, requests, [name], place, model, max_new_tokens, count)
            is_trained = count == engine.drafters[name].block_size - 1
            candidates += _candidates(name, count, is_trained, read_records([place]), cost)
    return sorted(candidates, key=lambda one: -one.tok_s)


def choose_best(
    engine: ReferenceEngine,
    requests: Sequence[BenchRequest],
    candidates: Sequence[Candidate],
    max_new_tokens: int,
) -> list[tuple[float, Candidate]]:
    """Speed-up of each candidate over plain decoding, the largest first.

    A request is answered plainly and by every candidate one right after the other, and each request begins with another
    of them. The speed-up is the geometric mean over requests of the ratio of output rates, prompts included. What the
    engine refuses is left out.
    """
    speedups: list[list[float]] = [[] for _ in candidates]
    refused: set[int] = set()
    for number, request in enumerate(requests):
        ids = engine.apply_chat_template([{"role": "user", "content": request.turns[0]}])
        rates: dict[int | None, float] = {}
        turn: list[int | None] = [None, *range(len(candidates))]
        start = number % len(turn)
        for index in turn[start:] + turn[:start]:
            if index in refused:
                continue
            try:
                answer = _answer(engine, ids, None if index is None else candidates[index], max_new_tokens)
            except (RequestError, Unsupported):
                if index is None:
                    raise
                refused.add(index)
            else:
                rates[index] = output_rate([answer.before_loop()])
        for index in range(len(candidates)):
            if index in rates:
                speedups[index].append(rates[index] / rates[None])
    measured = [
        (statistics.geometric_mean(found), one)
        for index, (found, one) in enumerate(zip(speedups, candidates, strict=True))
        if index not in refused
    ]
    return sorted(measured, key=lambda pair: -pair[0])


def _finalists(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The best of each drafter and kind of builder, then forms of the first tree that replay does not tell apart."""
    kinds: dict[tuple[str, bool, bool], Candidate] = {}
    for one in ranked:
        ways = one.mechanisms
        kinds.setdefault((one.drafter, ways.builder == "chain", ways.is_cost_aware), one)
    chosen = list(kinds.values())[:_FINALISTS]
    chain = next((one for one in ranked if one.mechanisms.builder == "chain"), None)
    if chain is not None and chain not in chosen:
        chosen.append(chain)
    tree = next((one for one in ranked if one.mechanisms.builder != "chain"), None)
    if tree is not None:
        forms: tuple[dict[str, Any], ...] = (
            {"has_certified_head": True},
            {"gdn_form": "wy"},
            {"q_weights": "int8"},
        )
        chosen += [replace(tree, mechanisms=replace(tree.mechanisms, **form)) for form in forms]
    return chosen


def _candidates(
    drafter: str, num_positions: int, is_trained: bool, steps: Sequence[ReplayStep], cost: StepCost
) -> Iterator[Candidate]:
    asked = None if is_trained else num_positions
    ways = [
        Mechanisms(builder, num_nodes, asked)
        for builder in _BUILDERS
        for num_nodes in (*_NODES, *([num_positions + 1] if builder == "chain" else []))
        if builder != "chain" or num_nodes <= num_positions + 1
    ]
    # The engine has the costs of trained positions.
    if is_trained:
        ways += [Mechanisms("best_first", nodes, is_cost_aware=True) for nodes in _COST_AWARE_NODES]
    for way in dict.fromkeys(ways):
        builder = make_builder(way.builder, step_cost=cost if way.is_cost_aware else None)
        (row,) = replay_builder(steps, way.builder, builder, [way.num_nodes or 1])
        if row.tau is None or row.mean_nodes is None:
            continue
        step_us = float(np.interp(row.mean_nodes, cost.rows, cost.times_us))
        yield Candidate(drafter, way, row.tau, row.mean_nodes, step_us, row.tau / step_us * 1e6)


def _answer(
    engine: ReferenceEngine, prompt_ids: Sequence[int], one: Candidate | None, max_new_tokens: int
) -> Answer:
    """Decoded by a candidate; None: plainly."""
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    options = BenchOptions("plain" if one is None else one.drafter, max_new_tokens=max_new_tokens)
    if one is not None:
        options = replace(options, mechanisms=one.mechanisms)
    return decode_answer(engine, options.request(prompt_ids, sampling, None if one is None else one.drafter))
