"""The comparison: interleaving, the numbers of its tables, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from specpilot.bench.compare.arms import AR, CANDIDATE, STOCK, Arm, StockChoice, own_arms
from specpilot.bench.compare.run import blocks, compare_gain, run_arms, tau
from specpilot.bench.compare.sweep import find_stock, stock_block, stock_choices
from specpilot.bench.compare.table import make_report, render
from specpilot.controller.selftest.world import WorldClock
from specpilot.controller.slots.base import Piece
from specpilot.errors import ConfigError
from specpilot.models.build import build_engine
from specpilot.profiles.records import read_record
from specpilot.profiles.schema import TunedStock
from specpilot.requests.sets import Prompt

PROMPTS = [Prompt(f"{name}/{n}", name, 1, (n + 1, 5)) for name in ("gsm8k", "mbpp", "own") for n in range(4)]


class Made:
    """Answers in ``steps`` steps; a token takes ``token_s``, twice that for benchmark prompts with an odd first id."""

    def __init__(self, clock: WorldClock, token_s: float, num_steps: int, log: list[str], name: str) -> None:
        self.clock, self.token_s, self.num_steps, self.log, self.name = clock, token_s, num_steps, log, name

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Piece]:
        self.log.append(self.name)
        self.clock.seconds += self.token_s * max_new_tokens * (1 + prompt_ids[0] % 2)
        yield Piece(tuple(range(max_new_tokens)), "length", self.num_steps)


def made_arms(log: list[str]) -> tuple[list[Arm], WorldClock]:
    clock = WorldClock()
    speeds = {AR: (0.02, 12), STOCK: (0.01, 6), CANDIDATE: (0.005, 3)}
    return [Arm(name, name, Made(clock, *values, log, name)) for name, values in speeds.items()], clock


def test_ratios_and_tau() -> None:
    arms, clock = made_arms([])
    results = run_arms(arms, PROMPTS, [1], 12, clock=clock)
    report = make_report(results, arms, [1])
    assert [round(row["speedup"], 6) for row in report["arms"]] == [1.0, 2.0, 4.0]
    assert [row["tau"] for row in report["arms"]] == [1.0, 2.0, 4.0]
    assert [row["num_diverged"] for row in report["arms"]] == [0, 0, 0]
    (gain,) = report["gains_over_stock"]
    assert gain["arm"] == CANDIDATE and gain["gain"] == pytest.approx(2.0)
    assert gain["gain_95"] == pytest.approx([2.0, 2.0])
    text = render(report)
    assert "Math: gsm8k" in text and "Code: mbpp" in text and "Other: own" in text
    assert "4.00x 4.00" in text and "tokens/step 2.00 -> 4.00" in text


def test_a_sweep_times_every_chain_and_gives_a_profile_its_stock() -> None:
    engine = build_engine(num_threads=1)
    ids = engine.apply_chat_template([{"role": "user", "content": "What is 3 + 4?"}])
    prompts = [Prompt(f"own/{n}", "own", 1, (*ids, n + 10)) for n in range(4)]
    stock, swept = find_stock(engine, prompts, [1], 8)
    assert len(swept) == len(stock_choices(engine)) >= 3 and swept[stock.label] == max(swept.values())
    block = stock_block(stock, swept, "specpilot bench compare --sweep")
    recorded = read_record(TunedStock, json.loads(json.dumps(block)), "stock")
    assert StockChoice(recorded.drafter, recorded.options.get("positions")) == stock


def test_arms_take_turns() -> None:
    log: list[str] = []
    arms, clock = made_arms(log)
    run_arms(arms, PROMPTS, [1], 12, clock=clock)
    # One warm-up each, then blocks of four prompts; the arm that begins moves on.
    assert log[3::4] == [AR, STOCK, CANDIDATE, STOCK, CANDIDATE, AR, CANDIDATE, AR, STOCK]


def test_every_block_has_all_benchmarks_and_no_block_is_too_short() -> None:
    assert [len({one.benchmark for one in block}) for block in blocks(PROMPTS, 4)] == [3, 3, 3]
    assert [len(block) for block in blocks(PROMPTS, 5)] == [5, 7]
    assert sorted(one.key for block in blocks(PROMPTS, 5) for one in block) == sorted(
        one.key for one in PROMPTS
    )


def test_a_system_that_does_not_tell_its_steps_has_no_tau() -> None:
    arms, clock = made_arms([])
    results = run_arms(arms, PROMPTS, [1], 12, clock=clock)
    assert tau([], STOCK) is None and tau(results[STOCK, 1], STOCK) == 2.0
    with pytest.raises(ConfigError, match="none called"):
        compare_gain(results, "nobody", AR, [1])


@pytest.mark.parametrize("named", [["x"], ["a="], ["=b"]])
def test_wrong_arms_are_refused(named: list[str]) -> None:
    with pytest.raises(ConfigError, match="NAME=URL"):
        own_arms(named)
