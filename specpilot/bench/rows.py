"""From pairs of answers to one result row."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specpilot.bench.answer import Answer
from specpilot.bench.pairs import BenchOptions, Pair
from specpilot.metrics import AcceptCounter

__all__ = ["ROW_VERSION", "BenchSummary", "output_rate", "rate_ratio", "speedup_interval", "summarise"]

# Raised when a field changes its meaning.
ROW_VERSION = 1
_NUM_RESAMPLES = 10_000


@dataclass(frozen=True)
class BenchSummary:
    """What a bench run found.

    Attributes
    ----------
    tau
        Accept length: mean correct drafts of a verify step, plus one.
    accept_by_position
        Share of the steps whose first i drafts were accepted.
    tok_s, ar_tok_s
        Output tokens a second of the drafter and of plain decoding, prefill included.
    speedup_over_ar
        Geometric mean over requests of the ratio of the two rates.
    loop_share
        Share of the drafter's answers that repeat a 32-gram.
    num_diverged
        Answers whose ids differ between the two arms.
    step_us
        Wall clock of a step in microseconds: 20th, 50th and 80th percentile of each arm.
    """

    num_requests: int
    num_answers: int
    num_tokens: int
    num_steps: int
    tau: float | None
    accept_by_position: tuple[float, ...]
    tok_s: float
    ar_tok_s: float
    speedup_over_ar: float
    loop_share: float
    num_diverged: int
    step_us: dict[str, dict[str, float]]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(results: Sequence[Sequence[Pair]], options: BenchOptions) -> BenchSummary:
    """Statistics over all pairs; with ``has_loop_cut`` each answer counts up to its loop."""

    speculative, plain = _counted(results, options)
    all_pairs = [pair for pairs in results for pair in pairs]
    steps = AcceptCounter(step for answers in speculative for answer in answers for step in answer.steps)
    return BenchSummary(
        num_requests=len(results),
        num_answers=len(all_pairs),
        num_tokens=sum(answer.num_tokens for answers in speculative for answer in answers),
        num_steps=steps.num_steps,
        tau=steps.tau,
        accept_by_position=steps.accept_by_position,
        tok_s=output_rate(answer for answers in speculative for answer in answers),
        ar_tok_s=output_rate(answer for answers in plain for answer in answers),
        speedup_over_ar=rate_ratio(speculative, plain),
        loop_share=statistics.fmean(p.speculative.loop_start is not None for p in all_pairs),
        num_diverged=sum(pair.plain.token_ids != pair.speculative.token_ids for pair in all_pairs),
        step_us={"plain": _step_percentiles(plain), "speculative": _step_percentiles(speculative)},
    )


def _counted(
    results: Sequence[Sequence[Pair]], options: BenchOptions
) -> tuple[list[list[Answer]], list[list[Answer]]]:
    """Answers of the drafter and plain ones by request, each as far as it counts."""

    def counted(answer: Answer) -> Answer:
        return answer.before_loop() if options.has_loop_cut else answer

    return (
        [[counted(pair.speculative) for pair in pairs] for pairs in results],
        [[counted(pair.plain) for pair in pairs] for pairs in results],
    )


def rate_ratio(candidate: Sequence[Sequence[Answer]], control: Sequence[Sequence[Answer]]) -> float:
    """Geometric mean over requests of the ratio of their output rates; a request may have several answers."""
    return statistics.geometric_mean(
        output_rate(a) / output_rate(b) for a, b in zip(candidate, control, strict=True)
    )


def speedup_interval(results: Sequence[Sequence[Pair]], options: BenchOptions) -> tuple[float, float]:
    """95% interval of ``speedup_over_ar``: requests drawn with replacement, 10,000 times, from a fixed seed."""
    arms = zip(*_counted(results, options), strict=True)
    ratios = np.array([output_rate(candidate) / output_rate(control) for candidate, control in arms])
    draw = np.random.default_rng(0).integers(0, len(ratios), (_NUM_RESAMPLES, len(ratios)))
    low, high = np.exp(np.quantile(np.log(ratios)[draw].mean(1), (0.025, 0.975)))
    return float(low), float(high)


def output_rate(answers: Iterable[Answer]) -> float:
    """Tokens a second over the whole time of the answers."""
    answers = list(answers)
    return sum(answer.num_tokens for answer in answers) / sum(answer.elapsed_s for answer in answers)


def _step_percentiles(answers: Sequence[Sequence[Answer]]) -> dict[str, float]:
    times = [step.total_us for group in answers for answer in group for step in answer.steps]
    if len(times) < 2:
        return {}
    fifths = statistics.quantiles(times, n=10, method="inclusive")
    return {"p20": fifths[1], "p50": fifths[4], "p80": fifths[7]}
