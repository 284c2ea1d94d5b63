"""Runs all arms over the same prompts, taking turns block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specpilot.bench.compare.arms import AR, Arm
from specpilot.controller.clock import Clock, SystemClock
from specpilot.controller.measure import NUM_WARM_UP_TOKENS, Measured, closed_loop, warm_up_prompts
from specpilot.controller.stats import Gain, RatePair, bootstrap_bounds, log_ratios, measure_gain
from specpilot.errors import ConfigError, EngineError
from specpilot.requests.sets import Prompt

__all__ = ["Comparison", "Results", "blocks", "compare_gain", "run_arms", "tau"]

_MIN_BLOCK = 4

Results = Mapping[tuple[str, int], tuple[Measured, ...]]
"""(arm, batch size) -> its answers in the prompts' order."""


@dataclass(frozen=True)
class Comparison:
    """Gain of one arm over another with its 95% interval, ratios."""

    gain: Gain
    lower: float
    upper: float


def run_arms(
    arms: Sequence[Arm],
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int],
    max_new_tokens: int,
    *,
    clock: Clock | None = None,
    on_block_done: Callable[[], None] = lambda: None,
) -> Results:
    """Closed loop with so many requests in flight.

    Prompts are dealt to blocks so that every block has all benchmarks; within a block every arm runs once, and the arm
    that begins moves on from block to block: a drift of the machine falls on all.
    """
    clock = clock or SystemClock()
    mark = clock.mark()
    results: dict[tuple[str, int], list[Measured]] = {}
    for size in batch_sizes:
        # As many at once as will be measured: a first step of so many requests may have something to build.
        warm_up = warm_up_prompts(prompts, size)
        for arm in arms:
            closed_loop(arm.endpoint, warm_up, size, NUM_WARM_UP_TOKENS, clock)
        for number, block in enumerate(blocks(prompts, max(2 * size, _MIN_BLOCK))):
            turn = number % len(arms)
            for arm in [*arms[turn:], *arms[:turn]]:
                results.setdefault((arm.name, size), []).extend(
                    closed_loop(arm.endpoint, block, size, max_new_tokens, clock)
                )
            on_block_done()
    if fault := clock.fault_since(mark):
        raise EngineError(fault)
    return {key: tuple(answers) for key, answers in results.items()}


def blocks(prompts: Sequence[Prompt], size: int) -> list[list[Prompt]]:
    """Benchmarks take turns; the last block may be short, but no block is so short that the load is another."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.benchmark, []).append(prompt)
    most = max(map(len, groups.values()))
    dealt = [group[index] for index in range(most) for group in groups.values() if index < len(group)]
    made = [dealt[at : at + size] for at in range(0, len(dealt), size)]
    if len(made) > 1 and len(made[-1]) < size // 2 + 1:
        short = made.pop()
        made[-1] += short
    return made


def compare_gain(results: Results, arm: str, over: str, batch_sizes: Sequence[int]) -> Comparison:
    """Per-request ratios of output rates, as :mod:`specpilot.controller.stats` combines them."""
    import numpy as np

    pairs = []
    for size in batch_sizes:
        if (arm, size) not in results or (over, size) not in results:
            raise ConfigError(f"arms: got none called {arm!r} or {over!r}")
        pairs += [
            RatePair(one.benchmark, size, one.key, 0, one.tok_s, other.tok_s)
            for one, other in zip(results[arm, size], results[over, size], strict=True)
        ]
    ratios, sizes = log_ratios(pairs)
    low, high, _ = bootstrap_bounds(ratios, 0.025, np.random.default_rng(0))
    return Comparison(measure_gain(ratios, sizes), math.exp(low), math.exp(high))


def tau(answers: Sequence[Measured], arm: str) -> float | None:
    """Tokens an exact pass, as far as the system tells its passes; 1 for plain decoding."""
    if arm == AR:
        return 1.0
    if not answers or any(not one.num_steps for one in answers):
        return None
    return sum(len(one.output_ids) for one in answers) / sum(one.num_steps or 0 for one in answers)
