"""Requests with the certified head: the same greedy ids, and the full head wherever more than the largest counts."""

from __future__ import annotations

from typing import Any

import pytest

from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.errors import Unsupported
from specpilot.models.build import build_engine
from specpilot.refengine.copies import TargetCopies
from specpilot.refengine.dense import load_dense
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.model import TargetModel
from tests.specpilot.refengine.random_dense import save_muse_glimmer, save_random
from tests.specpilot.refengine.random_target import UNTIED, random_tensors

QUESTIONS = ("What is 7 times 8?", "Write a Python function that reverses a list.", "Tell me about rivers.")
CERTIFIED = Mechanisms(has_certified_head=True)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, max_running=4)


def ids_of(engine: ReferenceEngine, text: str) -> list[int]:
    return engine.apply_chat_template([{"role": "user", "content": text}])


def ask(engine: ReferenceEngine, drafter: str | None, mechanisms: Mechanisms, **options: Any) -> list[int]:
    params = SamplingParams(**{"max_new_tokens": 32} | options)
    request = GenerateRequest(ids_of(engine, QUESTIONS[1]), params, drafter, mechanisms=mechanisms)
    return [token for chunk in engine.generate(request) for token in chunk.token_ids]


@pytest.mark.parametrize(
    ("drafter", "mechanisms"),
    [
        (None, CERTIFIED),
        ("dflash2", CERTIFIED),
        ("suffix", CERTIFIED),
        ("eagle3", Mechanisms("best_first", 16, has_certified_head=True)),
        ("dspark", Mechanisms("best_first", 16, q_weights="int8", has_certified_head=True)),
    ],
)
def test_ids_are_equal(engine: ReferenceEngine, drafter: str | None, mechanisms: Mechanisms) -> None:
    head = engine.copies.certified_head()
    before = head.counts.num_rows
    assert ask(engine, drafter, mechanisms) == ask(engine, None, STOCK)
    assert head.counts.num_rows > before
    assert head.counts.num_survivors >= head.counts.num_rows
    assert head.counts.num_full == 0


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7, "seed": 3},
        {"top_logprobs": 0},
        {"repetition_penalty": 1.2},
        {"logit_bias": {40: 3.0}},
        {"json_schema": '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}'},
    ],
)
def test_other_options_take_the_full_head(engine: ReferenceEngine, options: dict[str, Any]) -> None:
    counts = engine.copies.certified_head().counts
    before = counts.num_rows
    assert ask(engine, None, CERTIFIED, **options) == ask(engine, None, STOCK, **options)
    assert counts.num_rows == before


def test_both_heads_in_one_step(engine: ReferenceEngine) -> None:
    params = SamplingParams(max_new_tokens=24)
    arms = ((None, CERTIFIED), ("dflash2", STOCK), ("dflash2", CERTIFIED), (None, STOCK))
    for question in QUESTIONS:
        answers = [
            engine.generate(GenerateRequest(ids_of(engine, question), params, name, mechanisms=mechanisms))
            for name, mechanisms in arms
        ]
        ids = [[token for chunk in answer for token in chunk.token_ids] for answer in answers]
        assert all(answer == ids[0] for answer in ids[1:])


def test_a_head_of_its_own_that_is_no_bf16() -> None:
    target = TargetModel(UNTIED, random_tensors(UNTIED), "judge")
    head = TargetCopies(target).certified_head()
    import torch

    hidden = torch.randn(7, UNTIED.hidden_size, generator=torch.Generator().manual_seed(1))
    assert head.rows(hidden).argmax_ids.tolist() == target.logits(hidden).argmax(1).tolist()


def test_targets_that_change_their_logits_are_refused(tmp_path: Any) -> None:
    save_muse_glimmer(tmp_path)
    with pytest.raises(Unsupported, match="has_certified_head"):
        TargetCopies(load_dense(tmp_path, mode="judge")).certified_head()
    save_random(tmp_path, "llama")
    assert TargetCopies(load_dense(tmp_path, mode="judge")).certified_head().memory_bytes > 0
