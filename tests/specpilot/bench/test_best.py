"""The best combination: candidates follow from replay and measured steps, and are timed by decoding."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from specpilot.bench.answer import Answer, TimedChunk
from specpilot.bench.best import Candidate, choose_best, find_best
from specpilot.bench.mechanisms import batching_rows, builder_rows, markdown_table, two_level_rows
from specpilot.bench.pairs import BenchOptions, Pair
from specpilot.bench.rows import speedup_interval, summarise
from specpilot.engines.mechanisms import Mechanisms
from specpilot.errors import ConfigError
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot.requests.reading import BenchRequest

REQUESTS = [
    BenchRequest("one", ("Tom has 3 apples and buys 4. How many has he?",)),
    BenchRequest("two", ("Write a function that adds two numbers.",)),
]
NUM_TOKENS = 40


@pytest.fixture(scope="module")
def engine() -> Iterator[ReferenceEngine]:
    engine = build_engine(mode="serve", max_running=1)
    for name in list(engine.drafters):
        if name not in ("dflash2", "suffix"):
            del engine.drafters[name]
    yield engine


def test_report_of_the_best(engine: ReferenceEngine) -> None:
    stages: list[str] = []
    report = find_best(engine, REQUESTS, NUM_TOKENS, None, stages.append)
    assert json.loads(json.dumps(report))["best"] == report["best"]
    low, high = report["speedup_interval"]
    # One request was timed: its ratio is the interval.
    assert 0 < low == pytest.approx(report["speedup_over_ar"]) == pytest.approx(high)
    assert report["num_chosen_on"] == 1 and report["summary"]["num_requests"] == 1
    assert report["summary"]["num_diverged"] == 0
    rates = [one["tok_s"] for one in report["ranking"]]
    assert rates == sorted(rates, reverse=True)
    for one in report["ranking"]:
        assert one["tok_s"] == pytest.approx(one["tau"] / one["step_us"] * 1e6)
        Mechanisms(**one["mechanisms"])
    measured = [one["measured_speedup"] for one in report["finalists"]]
    assert measured == sorted(measured, reverse=True) and len(measured) >= 5
    assert report["best"] == {key: report["finalists"][0][key] for key in report["best"]}
    # Chains, trees that stop by cost and two levels are all timed.
    ways = [one["mechanisms"] for one in report["finalists"]]
    assert any(way["builder"] == "chain" for way in ways) and any(way["is_cost_aware"] for way in ways)
    assert any(way["q_weights"] == "int8" for way in ways)
    assert set(report["step_costs"]) == {"dflash2", "suffix"} == set(engine.step_costs or {})
    assert any("dflash2, 15" in stage for stage in stages)
    with pytest.raises(ConfigError, match="at least 2"):
        find_best(engine, REQUESTS[:1], NUM_TOKENS, None)


def test_what_the_engine_refuses_is_no_candidate() -> None:
    engine = build_engine(mode="judge", max_running=1)
    ways = (
        Mechanisms("best_first", 4),
        Mechanisms("best_first", 4, gdn_form="wy"),
        Mechanisms("best_first", 4, is_cost_aware=True),
    )
    candidates = [Candidate("dflash2", way, 1.0, 4.0, 1.0, 1.0) for way in ways]
    [(speedup, kept)] = choose_best(engine, REQUESTS[:1], candidates, 8)
    assert kept is candidates[0] and speedup > 0


def test_interval_is_that_of_the_requests() -> None:
    def answer(num_tokens: int, elapsed_s: float) -> Answer:
        return Answer((1,) * num_tokens, "", "length", (TimedChunk(num_tokens, elapsed_s, None),))

    options = BenchOptions("dflash2", has_loop_cut=False)
    results = [[Pair((1,), answer(8, 8.0), answer(8, 8.0 / ratio))] for ratio in (1.0, 2.0, 4.0) * 20]
    low, high = speedup_interval(results, options)
    assert summarise(results, options).speedup_over_ar == pytest.approx(2.0)
    # 60 log ratios with a standard deviation of 0.816 ln 2: the mean's 95% is 1.96 of it over the root of 60.
    assert low == pytest.approx(2.0 * 2**-0.207, rel=0.03) and high == pytest.approx(2.0 * 2**0.207, rel=0.03)
    assert low < 2.0 < high


def test_tables(engine: ReferenceEngine) -> None:
    rows = list(builder_rows(engine, {"a": REQUESTS[:1]}, ["dflash2"], NUM_TOKENS))
    assert {(row["positions"], row["builder"]) for row in rows} == {
        (count, name)
        for count in (7, 15)
        for name in ("chain", "best_first", "ddtree", "eagle2", "sequoia", "oracle")
    }
    rows = list(two_level_rows(engine, REQUESTS[:1], ["dflash2"], 8, NUM_TOKENS))
    assert [row["Q pass"] for row in rows] == ["none", "w12_view", "int8", "int6"]
    rows = list(batching_rows(REQUESTS, "dflash2", 6, 20, concurrency=2))
    assert [row["mechanism"] for row in rows][:2] == ["plain decoding", "chain"] and len(rows) == 6
    assert rows[0]["tau"] == 1.0 and rows[0]["rows"] == 1.0
    assert rows[2]["rows"] <= 6 and rows[3]["rows"] <= 12  # a request alone has the whole budget
    table = markdown_table([{"a": 1, "b": 2.346}, {"a": None, "b": "x"}])
    assert table == "| a | b |\n|---|---|\n| 1 | 2.35 |\n| - | x |\n"
