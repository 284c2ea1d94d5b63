"""The best combination: every candidate follows from replay and measured parts, and is timed on other requests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from specpilot.bench.best import find_best
from specpilot.bench.mechanisms import batching_rows, builder_rows, markdown_table, two_level_rows
from specpilot.bench.step_times import PartTimes, measure_parts
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
    assert report["speedup_over_ar"] > 0 and report["num_chosen_on"] == 1
    assert report["summary"]["num_requests"] == 1
    rates = [one["tok_s"] for one in report["ranking"]]
    assert rates == sorted(rates, reverse=True) and len(report["finalists"]) == 4
    fastest = max(report["finalists"], key=lambda one: one["measured_tok_s"])
    assert report["best"] == {key: fastest[key] for key in report["best"]}
    for one in report["ranking"]:
        assert one["tok_s"] == pytest.approx(one["tau"] / one["step_us"] * 1e6)
        Mechanisms(**one["mechanisms"])
    assert any("dflash2, 15" in stage for stage in stages)
    with pytest.raises(ConfigError, match="at least 2"):
        find_best(engine, REQUESTS[:1], NUM_TOKENS, None)


def test_parts_of_a_step(engine: ReferenceEngine) -> None:
    times = measure_parts(engine, [("dflash2", 7), ("suffix", 7)], rows=(1, 4, 16))
    assert set(times.layers_us) == {"chain", "path", "wy"}
    for column in (*times.layers_us.values(), times.full_head_us, times.certified_head_us or ()):
        assert len(column) == 3 and 0 < column[0] <= column[1] <= column[2]
    assert set(times.draft_us) == {
        (name, 7, flag) for name in ("dflash2", "suffix") for flag in (False, True)
    }


def test_step_time_is_the_sum_of_its_parts() -> None:
    times = PartTimes(
        (1, 3), {"chain": (10.0, 20.0), "path": (10.0, 30.0)}, (5.0, 7.0), (1.0, 2.0),
        {("d", 7, False): 100.0, ("d", 7, True): 200.0}
    )  # fmt: skip
    assert times.step_us("d", 7, "chain", 2, is_certified=False) == 15 + 6 + 100
    assert times.step_us("d", 7, "path", 3, is_certified=True) == 30 + 2 + 200


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
