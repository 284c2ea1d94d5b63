"""The best combination of mechanisms for one request on this machine, chosen by measured cost and replayed tau.

1. Record the lattices of every drafter at every position of some answers (:mod:`specpilot.replay.every_position`).
2. Time the parts of a step by rows (:mod:`specpilot.bench.step_times`).
3. Replay every builder at every N: tokens of a step, and rows. Tokens a second are tau over the step's time.
4. Decode with the best few, one after the other in turns, and keep the fastest.
5. Time it against plain decoding of the same numeric mode on requests that took no part in the choice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specpilot.bench.answer import decode_answer
from specpilot.bench.pairs import BenchOptions, run_pairs
from specpilot.bench.record import record_requests
from specpilot.bench.rows import output_rate, summarise
from specpilot.bench.step_times import Form, PartTimes, measure_parts
from specpilot.draft.builders import make_builder
from specpilot.engines.base import SamplingParams
from specpilot.engines.mechanisms import Builder, Mechanisms
from specpilot.errors import ConfigError
from specpilot.refengine.engine import ReferenceEngine
from specpilot.replay.records import ReplayStep, read_records
from specpilot.replay.selection import replay_builder
from specpilot.requests.reading import BenchRequest

__all__ = ["Candidate", "find_best", "rank_candidates"]

_NODES = (3, 4, 6, 8, 10, 12, 16, 24, 32)
_BUILDERS: tuple[Builder, ...] = ("chain", "best_first", "ddtree", "eagle2")
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
        Draft, target and selection of a step of so many rows.
    tok_s
        ``tau / step_us``, in tokens a second: the model's estimate, prompts left out.
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
    """Choose on every other request, time on the rest: the report as a JSON object."""
    if len(requests) < 2:
        raise ConfigError(
            f"requests: got {len(requests)}, expected at least 2: some to choose on, others to time"
        )
    chosen_on, timed_on = requests[::2], requests[1::2]
    ranked = rank_candidates(engine, chosen_on, max_new_tokens, model, on_stage)
    on_stage(f"timing the best {_FINALISTS}")
    finalists = [(_rate(engine, chosen_on, one, max_new_tokens), one) for one in ranked[:_FINALISTS]]
    _, best = max(finalists, key=lambda pair: pair[0])
    on_stage("timing against plain decoding")
    options = BenchOptions(best.drafter, max_new_tokens=max_new_tokens, mechanisms=best.mechanisms)
    summary = summarise(run_pairs(engine, timed_on, options), options)
    return {
        "speedup_over_ar": summary.speedup_over_ar,
        "best": asdict(best),
        "finalists": [asdict(one) | {"measured_tok_s": measured} for measured, one in finalists],
        "ranking": [asdict(one) for one in ranked[:20]],
        "num_candidates": len(ranked),
        "num_chosen_on": len(chosen_on),
        "summary": summary.as_json(),
    }


def rank_candidates(
    engine: ReferenceEngine,
    requests: Sequence[BenchRequest],
    max_new_tokens: int,
    model: str | Path | None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> list[Candidate]:
    """All candidates, the one with the most tokens a second by the model first."""
    trained = {name: drafter.block_size - 1 for name, drafter in engine.drafters.items()}
    positions = [(name, count) for name, count in trained.items()]
    positions += [
        (name, _MORE_POSITIONS)
        for name, count in trained.items()
        if count < _MORE_POSITIONS <= engine.drafters[name].max_positions
    ]
    on_stage("timing the parts of a step")
    times = measure_parts(engine, positions)
    candidates: list[Candidate] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, count in positions:
            on_stage(f"recording and replaying {name}, {count} positions")
            place = Path(folder) / f"{name}-{count}"
            record_requests(engine, requests, [name], place, model, max_new_tokens, count)
            is_trained = count == trained[name]
            candidates += _candidates(engine, name, count, is_trained, read_records([place]), times)
    return sorted(candidates, key=lambda one: -one.tok_s)


def _candidates(
    engine: ReferenceEngine,
    drafter: str,
    num_positions: int,
    is_trained: bool,
    steps: Sequence[ReplayStep],
    times: PartTimes,
) -> Iterator[Candidate]:
    asked = None if is_trained else num_positions
    for builder in _BUILDERS:
        nodes = [n for n in _NODES if builder != "chain" or n <= num_positions] + (
            [num_positions + 1] if builder == "chain" else []
        )
        for num_nodes in nodes:
            began = time.perf_counter()
            (row,) = replay_builder(steps, builder, make_builder(builder), [num_nodes])
            select_us = (time.perf_counter() - began) * 1e6 / len(steps)
            if row.tau is None or row.mean_nodes is None:
                continue
            best: tuple[float, Form, bool] | None = None
            for form in times.layers_us:
                if (form == "chain") != (builder == "chain"):
                    continue
                for is_certified in (False, True):
                    if is_certified and times.certified_head_us is None:
                        continue
                    step_us = times.step_us(
                        drafter, num_positions, form, row.mean_nodes, is_certified=is_certified
                    )
                    if best is None or step_us < best[0]:
                        best = (step_us, form, is_certified)
            if best is None:
                continue
            step_us, form, is_certified = best[0] + select_us, best[1], best[2]
            mechanisms = Mechanisms(
                builder,
                num_nodes,
                asked,
                gdn_form="wy" if form == "wy" else "path",
                has_certified_head=is_certified,
            )
            yield Candidate(drafter, mechanisms, row.tau, row.mean_nodes, step_us, row.tau / step_us * 1e6)


def _rate(
    engine: ReferenceEngine, requests: Sequence[BenchRequest], one: Candidate, max_new_tokens: int
) -> float:
    """Output tokens a second of a candidate, prompts included."""
    options = BenchOptions(one.drafter, max_new_tokens=max_new_tokens, mechanisms=one.mechanisms)
    answers = []
    for request in requests:
        ids = engine.apply_chat_template([{"role": "user", "content": request.turns[0]}])
        made = options.request(ids, SamplingParams(max_new_tokens=max_new_tokens), one.drafter)
        answers.append(decode_answer(engine, made).before_loop())
    return output_rate(answers)
