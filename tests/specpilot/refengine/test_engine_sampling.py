"""Sampling options on the bundled models: with drafts and without, greedy answers are equal and sampled laws too."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.errors import RequestError
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from tests.oracles.statistics import chi_square_p_value

CHAT = "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?"
# Continued without a chat: in a chat the small model is so sure of itself that little is left to draw or to penalise.
UNUSUAL = "Rivers, owls, 3 boxes; the sea"
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"steps": {"type": "array", "items": {"type": "string"}}, "pens": {"type": "integer"}},
        "required": ["steps", "pens"],
    }
)
OPTIONS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.8},
    "frequency": {"frequency_penalty": 2.0},
    "presence": {"presence_penalty": 2.0},
    "bias": {"logit_bias": {9: 4.0, 40: 8.0, 228: -100.0}},
    "any object": {"json_schema": '{"type": "object"}'},
    "schema": {"json_schema": SCHEMA},
    "penalties and schema": {"json_schema": SCHEMA, "frequency_penalty": 0.4, "repetition_penalty": 0.9},
    "all": {
        "json_schema": SCHEMA,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.2,
        "logit_bias": {9: 1.0, 228: -3.0},
        "top_k": 7,
        "top_p": 0.8,
        "min_p": 0.1,
    },
}


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


def prompt_ids(engine: ReferenceEngine, prompt: str) -> list[int]:
    if prompt == UNUSUAL:
        return engine.tokenize(prompt)
    return engine.apply_chat_template([{"role": "user", "content": prompt}])


def ask(
    engine: ReferenceEngine, prompt: str, drafter: str | None, **options: Any
) -> tuple[list[int], str, str | None]:
    request = GenerateRequest(prompt_ids(engine, prompt), SamplingParams(**options), drafter)
    chunks = list(engine.generate(request))
    ids = [token for chunk in chunks for token in chunk.token_ids]
    return ids, "".join(chunk.text for chunk in chunks), chunks[-1].finish_reason


@pytest.mark.parametrize("prompt", [CHAT, UNUSUAL])
@pytest.mark.parametrize("name", OPTIONS)
def test_greedy_answers_are_equal_with_drafts_and_without(
    engine: ReferenceEngine, name: str, prompt: str
) -> None:
    plain = ask(engine, prompt, None, max_new_tokens=40, **OPTIONS[name])
    for drafter in engine.drafters:
        assert ask(engine, prompt, drafter, max_new_tokens=40, **OPTIONS[name]) == plain
    if prompt == UNUSUAL:
        assert plain != ask(engine, prompt, None, max_new_tokens=40)  # the option acts


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_answers_are_json_that_ends_by_itself(engine: ReferenceEngine, temperature: float) -> None:
    schema = {"type": "array", "items": {"enum": [1, 2, None]}, "minItems": 1, "maxItems": 3}
    for drafter, seed in itertools.product((None, *engine.drafters), range(3)):
        ids, text, reason = ask(
            engine,
            CHAT,
            drafter,
            temperature=temperature,
            seed=seed,
            json_schema=json.dumps(schema),
            max_new_tokens=64,
        )
        assert reason == "stop" and ids[-1] in engine.describe().eos_ids
        answer = json.loads(text)
        assert 1 <= len(answer) <= 3 and set(answer) <= {1, 2, None}


def test_stop_strings_of_every_length_match_across_tokens(engine: ReferenceEngine) -> None:
    whole = ask(engine, CHAT, None, max_new_tokens=24)[1]
    for start, size in itertools.product(range(0, len(whole) - 9, 5), (1, 3, 9)):
        stop = whole[start : start + size]
        for drafter in (None, *engine.drafters):
            _, text, reason = ask(engine, CHAT, drafter, max_new_tokens=24, stop=(stop, "\u4f60"))
            assert (text, reason) == (whole[: whole.index(stop)], "stop")


def test_score_gives_as_many_alternatives_as_asked(engine: ReferenceEngine) -> None:
    ids = prompt_ids(engine, CHAT)
    bare, full = engine.score(ids, 3), engine.score(ids, 3, num_top=20)
    assert replace(full, top=bare.top) == bare and bare.top == ((),) * (len(ids) - 3)
    for top, best, value in zip(full.top, full.argmax_ids, full.argmax_logprobs, strict=True):
        assert len(top) == 20 and top[0] == (best, value)
        assert [logprob for _, logprob in top] == sorted((logprob for _, logprob in top), reverse=True)
    with pytest.raises(RequestError, match="num_top"):
        engine.score(ids, 3, num_top=21)


def test_options_are_checked_before_the_answer_begins(engine: ReferenceEngine) -> None:
    for options in ({"logit_bias": {4096: 1.0}}, {"json_schema": '{"not": {}}'}):
        with pytest.raises(RequestError):
            engine.generate(GenerateRequest([5], SamplingParams(**options)))
        assert engine.health().num_running == 0


NUM_TOKENS, NUM_ANSWERS = 3, 400
DRAWN = SamplingParams(
    max_new_tokens=NUM_TOKENS,
    temperature=2.0,
    top_k=3,
    top_p=0.97,
    frequency_penalty=-1.0,
    presence_penalty=0.5,
    logit_bias={1642: 1.5},
    ignore_eos=True,
)


def law_of(engine: ReferenceEngine, ids: list[int], params: SamplingParams) -> dict[tuple[int, ...], float]:
    """Law of the first tokens, from teacher-forced log-probabilities of the 20 most likely."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NUM_TOKENS):
        longer: dict[tuple[int, ...], float] = {}
        for said, weight in law.items():
            # One more token, whichever: its place is what is scored.
            (top,) = engine.score([*ids, *said, 0], len(ids) + len(said), num_top=20).top
            logits = {token: value + params.logit_bias.get(token, 0.0) for token, value in top}
            for token in logits:
                count = said.count(token)
                logits[token] -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
            ranked = sorted(logits, key=lambda token: (-logits[token], token))[: params.top_k]
            weights = [math.exp(logits[token] / params.temperature) for token in ranked]
            before = [sum(weights[:index]) / sum(weights) for index in range(len(weights))]
            kept = [(t, w) for t, w, b in zip(ranked, weights, before, strict=True) if b < params.top_p]
            for token, part in kept:
                longer[(*said, token)] = weight * part / sum(w for _, w in kept)
        law = longer
    return law


@pytest.fixture(scope="module")
def drawn(engine: ReferenceEngine) -> dict[tuple[int, ...], int]:
    ids = prompt_ids(engine, UNUSUAL)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(NUM_ANSWERS):
        request = GenerateRequest(ids, replace(DRAWN, seed=seed), "dflash2")
        answer = tuple(token for chunk in engine.generate(request) for token in chunk.token_ids)
        counts[answer] = counts.get(answer, 0) + 1
    return counts


def p_value(law: dict[tuple[int, ...], float], drawn: dict[tuple[int, ...], int]) -> float:
    cells = [*law, *(drawn.keys() - law.keys())]
    return chi_square_p_value(
        torch.tensor([float(drawn.get(cell, 0)) for cell in cells]),
        torch.tensor([law.get(cell, 0.0) for cell in cells], dtype=torch.float64),
    )


def test_sampled_answers_with_drafts_pass_chi_square(
    engine: ReferenceEngine, drawn: dict[tuple[int, ...], int]
) -> None:
    """400 answers of three tokens, seeds 0 to 399, level 0.001."""
    assert len(drawn) > 8
    assert p_value(law_of(engine, prompt_ids(engine, UNUSUAL), DRAWN), drawn) > 0.001


@pytest.mark.parametrize("change", [{"temperature": 1.1}, {"logit_bias": {}}, {"top_p": 0.8}, {"top_k": 4}])
def test_control_chi_square_rejects_another_law(
    engine: ReferenceEngine, drawn: dict[tuple[int, ...], int], change: dict[str, Any]
) -> None:
    assert p_value(law_of(engine, prompt_ids(engine, UNUSUAL), replace(DRAWN, **change)), drawn) < 1e-3
