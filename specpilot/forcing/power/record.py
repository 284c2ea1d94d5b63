"""``python -m specpilot.forcing.power.record --out FILE``: run and audit stock, every mechanism and every fault.

All on the bundled model; each arm is decoded, scored and audited in full against stock's answers to the same prompts.
Arms that FILE holds already are kept, with the prompts they had, so a run that was cut goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specpilot.errors import ConfigError
from specpilot.forcing.accuracy import accuracy_change
from specpilot.forcing.answer import Answer
from specpilot.forcing.arm import ScoredArm, score_arm
from specpilot.forcing.auditing import judge
from specpilot.forcing.calibrate import first_departures
from specpilot.forcing.collect import Prompt, collect_answers
from specpilot.forcing.faults.catalogue import FAULTS, ROUNDED
from specpilot.forcing.faults.run import run_fault
from specpilot.forcing.power.lossless import LOSSLESS
from specpilot.forcing.power.recorded import RecordedArm, Recording, read_recording
from specpilot.forcing.prompts import AuditPrompt, audit_prompts, grade_answers
from specpilot.forcing.rules import Rules, delta_from_margins
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

__all__ = ["Run", "Workbench", "arms_of", "main", "record"]

Run = Callable[[Sequence[Prompt], int], list[Answer]]
"""Answers to prompts of so many tokens at most."""


@dataclass
class Workbench:
    """Stock, its answers scored, and what arms are judged by."""

    engine: ReferenceEngine
    scorer: EngineScorer
    questions: list[AuditPrompt]
    prompts: list[Prompt]
    max_new_tokens: int
    rules: Rules
    stock: ScoredArm

    @classmethod
    def build(cls, num_prompts: int, max_new_tokens: int, rules: Rules) -> Workbench:
        """Threshold included: the departures of a BF16 head from plain decoding, both on these prompts."""
        engine = build_engine(mode="judge", max_running=8, max_waiting=num_prompts)
        scorer = EngineScorer(engine, drafter="dflash2")
        questions = audit_prompts(num_prompts)
        prompts: list[Prompt] = [
            (one.request_id, engine.apply_chat_template([{"role": "user", "content": one.text}]))
            for one in questions
        ]
        stock = collect_answers(engine, prompts, max_new_tokens, drafter="dflash2")
        rounded = run_fault(ROUNDED, prompts[:64], max_new_tokens)
        margins = first_departures(stock, rounded, scorer)
        rules = replace(rules, delta=delta_from_margins(margins))
        scored = score_arm(stock, scorer, rules, "stock")
        return cls(engine, scorer, questions, prompts, max_new_tokens, rules, scored)

    def grades(self, answers: Sequence[Answer]) -> dict[str, bool]:
        """Whether each graded answer ends in the right number."""
        return grade_answers(self.questions, answers, self.engine.detokenize)

    def stock_of(self, num_prompts: int) -> ScoredArm:
        """Stock's answers to the first prompts; they are in the order of their names."""
        counts = self.stock.counts
        kept = replace(
            counts,
            request_ids=counts.request_ids[:num_prompts],
            tokens=counts.tokens[:num_prompts],
            mismatches=counts.mismatches[:num_prompts],
            large=counts.large[:num_prompts],
        )
        return ScoredArm(self.stock.answers[:num_prompts], kept, self.stock.events[:num_prompts])

    def run_arm(
        self, name: str, what: str, kind: str, size: float, run: Run, num_prompts: int
    ) -> RecordedArm:
        """Decode, score and audit one arm."""
        answers = run(self.prompts[:num_prompts], self.max_new_tokens)
        arm = score_arm(answers, self.scorer, self.rules)
        stock = self.stock_of(num_prompts)
        accuracy = accuracy_change(self.grades(answers), self.grades(stock.answers))
        verdict = judge(arm, stock, self.scorer, self.rules, accuracy=accuracy, is_complete=False)
        counts = verdict.counts["system"]
        audited, unexplained = counts["audited_events"], counts["unexplained_events"]
        rows = np.stack([arm.counts.tokens, arm.counts.mismatches, arm.counts.large], 1)
        summary: dict[str, Any] = {
            "passed": verdict.passed,
            "reasons": list(verdict.reasons),
            "counts": dict(counts),
            "intervals": {key: dict(value) for key, value in verdict.intervals.items()},
            "event_p_value": verdict.limits["event_p_value"],
            "detectable_rate": verdict.limits["detectable_rate"],
            "detectable_requests": verdict.limits["detectable_requests"],
            "accuracy": accuracy,
        }
        return RecordedArm(name, what, kind, size, rows, unexplained / audited if audited else None, summary)


def arms_of(num_lossless: int, num_faults: int) -> Iterator[tuple[str, str, str, float, Run, int]]:
    """Name, what, kind, size, how to run it, and prompts, of every arm but stock."""

    def faulty(fault: Any) -> Run:
        return lambda prompts, most: run_fault(fault, prompts, most)

    yield ROUNDED.name, ROUNDED.what, "lossless", 0.0, faulty(ROUNDED), num_faults
    for fault in FAULTS:
        yield fault.name, fault.what, "fault", fault.size, faulty(fault), num_faults
    for arm in LOSSLESS:
        yield arm.name, f"lossless: {arm.name}", "lossless", 0.0, arm.answers, num_lossless


def record(
    out: Path,
    num_prompts: int,
    num_lossless: int,
    max_new_tokens: int,
    rules: Rules,
    only: Sequence[str] = (),
) -> Recording:
    """Run what ``out`` does not hold yet, writing after every arm."""
    bench = Workbench.build(num_prompts, max_new_tokens, rules)
    made = {
        "max_new_tokens": max_new_tokens,
        "model": bench.engine.describe().model_id,
        "scorer": bench.scorer.describe().name,
    }
    counts = bench.stock.counts
    rows = np.stack([counts.tokens, counts.mismatches, counts.large], 1)
    stock = RecordedArm("stock", "DFlash2 chain, judge mode", "stock", 0.0, rows, None, {})
    recording = Recording(made, bench.rules, (stock,))
    if out.exists():
        recording = read_recording(out)
        if recording.made != made or recording.rules != bench.rules:
            raise ConfigError(f"power: {out} was recorded otherwise; remove it, or name another file")
        if len(recording.named("stock").rows) < num_prompts:
            raise ConfigError(
                f"power: {out} has fewer answers of stock than {num_prompts}; name another file"
            )
    known = {arm.name for arm in recording.arms}
    for name, what, kind, size, run, count in arms_of(num_lossless, num_prompts):
        if name in known or (only and name not in only):
            continue
        began = time.monotonic()
        arm = bench.run_arm(name, what, kind, size, run, count)
        recording = replace(recording, arms=(*recording.arms, arm))
        recording.write(out)
        word = "accepted" if arm.verdict["passed"] else "rejected"
        print(
            f"{name}: {word}, {arm.verdict['counts']}, {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return recording


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=220, help="Prompts of every fault.")
    parser.add_argument("--lossless-prompts", type=int, default=32, help="Prompts of every mechanism.")
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--only", nargs="*", default=(), help="Arms by name. Default: all.")
    options = parser.parse_args(arguments)
    record(options.out, options.prompts, options.lossless_prompts, options.max_tokens, Rules(), options.only)


if __name__ == "__main__":
    main()
