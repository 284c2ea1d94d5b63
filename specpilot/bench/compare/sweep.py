"""Tuned stock: every upstream option that an engine has, timed beside plain decoding, and the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specpilot.bench.compare.arms import AR, Arm, StockChoice
from specpilot.bench.compare.run import compare_gain, run_arms
from specpilot.controller.slots.engine import EngineEndpoint
from specpilot.engines.base import Engine
from specpilot.engines.mechanisms import Mechanisms
from specpilot.errors import ConfigError
from specpilot.requests.sets import Prompt

__all__ = ["find_stock", "stock_block", "stock_choices"]

_POSITIONS = (3, 5)


def stock_choices(engine: Engine) -> list[StockChoice]:
    """Chains of every drafter with weights of its own, as trained and shorter.

    Attached and weightless drafters are not upstream's.
    """
    drafters = [name for name in engine.describe().drafters if "+" not in name and name != "suffix"]
    if not drafters:
        raise ConfigError("sweep: the engine has no drafter of its own, expected one to be stock")
    return [StockChoice(name, positions) for name in drafters for positions in (None, *_POSITIONS)]


def find_stock(
    engine: Engine,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int],
    max_new_tokens: int,
    on_block_done: Callable[[], None] = lambda: None,
) -> tuple[StockChoice, Mapping[str, float]]:
    """The fastest choice, and the speed-up over plain decoding of each by its label."""
    choices = stock_choices(engine)
    arms = [Arm(AR, "plain", EngineEndpoint(engine, None))]
    arms += [
        Arm(
            one.label, one.label, EngineEndpoint(engine, one.drafter, Mechanisms(num_positions=one.positions))
        )
        for one in choices
    ]
    results = run_arms(arms, prompts, batch_sizes, max_new_tokens, on_block_done=on_block_done)
    swept = {one.label: compare_gain(results, one.label, AR, batch_sizes).gain.ratio for one in choices}
    return max(choices, key=lambda one: swept[one.label]), swept


def stock_block(stock: StockChoice, swept: Mapping[str, float], source: str) -> dict[str, Any]:
    """A profile's block ``stock`` (:class:`specpilot.profiles.schema.TunedStock`)."""
    return {
        "drafter": stock.drafter,
        "options": {} if stock.positions is None else {"positions": stock.positions},
        "speedup_over_ar": max(swept.values()),
        "swept": dict(swept),
        "source": source,
    }
