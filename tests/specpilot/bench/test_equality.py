"""The equality report on the bundled models, and that it sees an answer that differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specpilot.bench.equality import answer_all, compare_answers, equality_report
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

SETS = {
    "sums": ["A shelf holds 9 cups. How many cups do 6 shelves hold?"],
    "talk": ["Name two birds.", "Hello."],
}
SIZE = 24


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", max_running=3)


@pytest.fixture(scope="module")
def prompts(engine: ReferenceEngine) -> dict[str, list[list[int]]]:
    return {
        name: [engine.apply_chat_template([{"role": "user", "content": text}]) for text in texts]
        for name, texts in SETS.items()
    }


def test_no_answer_differs_and_every_arm_is_there(
    engine: ReferenceEngine, prompts: dict[str, list[list[int]]]
) -> None:
    report = equality_report(engine, prompts, SIZE, 3)
    drafters = engine.describe().drafters
    assert {"dflash2", "dspark", "eagle3", "suffix"} <= set(drafters)
    assert set(report["arms"]) == {f"{name} x{size}" for name in ("plain", *drafters) for size in (1, 3)}
    assert all(arm["num_answers"] == 3 and arm["differences"] == [] for arm in report["arms"].values())
    assert set(report["tau"]) == set(drafters)
    assert report["tau"]["dflash2"]["sums"] > 1.5


def test_a_changed_token_and_a_cut_answer_are_found(
    engine: ReferenceEngine, prompts: dict[str, list[list[int]]]
) -> None:
    flat = [ids for group in prompts.values() for ids in group]
    own = answer_all(engine, flat, None, SIZE, 1)
    right = own[0].token_ids[5]
    wrong = (*own[0].token_ids[:5], (right + 1) % 4096, *own[0].token_ids[6:])
    other = [replace(own[0], token_ids=wrong), own[1], replace(own[2], token_ids=own[2].token_ids[:-1])]
    changed, cut = compare_answers(engine, flat, own, other)
    assert (changed["request"], changed["at"], changed["own"]) == (0, 5, right)
    assert changed["margin_nats"] > 0
    assert (cut["request"], cut["other"], cut["margin_nats"]) == (2, None, None)
