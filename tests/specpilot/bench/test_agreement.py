"""Counting agreement: all of it for an equal copy, little for a damaged one, and what the report says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specpilot.bench.agreement import Agreement, agreement_report, count_agreement
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.low_precision import low_precision_copy


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


def test_equal_and_damaged_copies(engine: ReferenceEngine) -> None:
    ids = engine.tokenize("A river carries water from the hills to the sea. A river carries water.")
    copy = low_precision_copy(engine.target, "int8")
    equal = replace(copy, target=engine.target)
    damaged: Any = low_precision_copy(engine.target, "int8").target
    damaged._head.weight.scales[:] *= -1
    for num_rows in (1, 5, 64):
        agreed = count_agreement(engine.target, [equal, replace(copy, target=damaged)], ids, num_rows)
        assert agreed.shape == (2, len(ids) - 1)
        assert agreed[0].all()
        assert agreed[1].mean() < 0.2


def test_report(engine: ReferenceEngine) -> None:
    prompts = [
        engine.apply_chat_template([{"role": "user", "content": text}]) for text in ("Hi", "What is 2 + 3?")
    ]
    report = agreement_report(
        engine,
        prompts,
        ["w12_view", "int6"],
        num_positions=10_000,
        max_new_tokens=12,
        num_rows=8,
        has_head=True,
    )
    assert report["num_texts"] == 2
    for row in report["copies"].values():
        assert 0.5 < row["top1"] <= 1
        assert row["top1_95"][0] <= row["top1"] <= row["top1_95"][1]
        assert 0 < row["num_answer_positions"] < row["num_positions"]
        assert row["format_bytes"] < row["exact_bytes"]
    few = agreement_report(
        engine, prompts, ["int8"], num_positions=1, max_new_tokens=4, num_rows=8, has_head=False
    )
    assert few["num_texts"] == 1
    alone = agreement_report(
        engine, prompts, ["int8"], num_positions=10_000, max_new_tokens=0, num_rows=8, has_head=True
    )["copies"]["int8"]
    assert alone["num_positions"] == sum(len(prompt) - 1 for prompt in prompts)
    assert alone["num_answer_positions"] == 0 and alone["top1_answers"] is None


def test_an_interval_is_over_texts() -> None:
    """Ten positions of one text are one observation."""
    together = Agreement([90, 0], [100, 100], [0, 0], [0, 0]).as_json()
    assert together["top1"] == 0.45
    assert together["top1_95"] == [0.0, 0.9]
    assert together["top1_answers"] is None
    assert np.isfinite(together["num_positions"])
