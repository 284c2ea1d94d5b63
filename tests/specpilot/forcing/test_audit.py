"""Audits of the bundled model: lossless is accepted, a fault rejected, what cannot be judged is neither."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from specpilot.engines.base import ScoreResult
from specpilot.errors import ConfigError, ForcingError
from specpilot.forcing import Answer, Rules, Verdict, audit, delta_from_margins, hash_tokenizer, score_arm
from specpilot.forcing.events import event_test
from specpilot.forcing.scorers.engine import EngineScorer
from tests.specpilot.forcing.conftest import MAX_TOKENS, answer_all

RULES = Rules(delta=0.125, min_tokens=300)
NUM_WRONG = 2


@pytest.fixture(scope="module")
def scored_stock(stock, scorer):
    return score_arm(stock, scorer, RULES, "stock")


def test_a_lossless_mechanism_is_accepted(engine, scorer, scored_stock):
    told = []
    plain = answer_all(engine, None)
    verdict = audit(
        plain, scorer, rules=RULES, stock=scored_stock, on_progress=lambda *step: told.append(step)
    )
    assert verdict.passed is True and verdict.reasons == () and verdict.word == "accepted"
    num_tokens = sum(len(answer.output_ids) for answer in plain)
    assert verdict.counts["system"]["tokens"] == num_tokens and verdict.counts["system"]["mismatches"] == 0
    assert told[-1] == ("system", num_tokens, num_tokens)
    # What it could not have found is said.
    assert verdict.limits["detectable_rate"] > RULES.rate_limit and verdict.limits["detectable_requests"] == 6


def test_a_logit_bias_is_rejected_by_both_rules_with_evidence(engine, scorer, scored_stock):
    biased = answer_all(engine, "dflash2", logit_bias={i: 5.0 for i in range(0, 4096, 7)})
    verdict = audit(biased, scorer, rules=RULES, stock=scored_stock)
    assert verdict.passed is False and len(verdict.reasons) == 2
    assert verdict.counts["system"]["unexplained_events"] == len(verdict.events) > 20
    event = verdict.events[0]
    answer = next(a for a in biased if a.request_id == event.request_id)
    assert event.token_id == answer.output_ids[event.index] and event.margin > RULES.large_margin
    assert [*answer.prompt_ids, *answer.output_ids[: event.index]][-len(event.context_ids) :] == list(
        event.context_ids
    )
    assert event.evidence["prefill"] and event.evidence["stock_continues"]["0"] == [event.argmax_id]
    document = json.loads(json.dumps(verdict.to_json()))
    assert (
        Verdict.from_json(document).to_json() == document
        and Verdict.from_json(document).events == verdict.events
    )


def test_a_request_full_of_events_does_not_use_up_the_audit(engine, scorer, scored_stock):
    """One request against stock's many could not be rejected: others are looked at, too."""
    biased = answer_all(engine, "dflash2", logit_bias={i: 5.0 for i in range(0, 4096, 7)})
    verdict = audit(biased, scorer, rules=replace(RULES, max_audited=1), stock=scored_stock)
    counts = verdict.counts["system"]
    assert counts["audited_requests"] >= RULES.fewest_requests
    assert counts["unexplained_requests"] == counts["audited_events"] < counts["large_events"]
    assert verdict.passed is False and verdict.reasons[-1].startswith("event rule"), verdict.reasons
    assert sum(event.explanation is None for event in verdict.events) > 0


def test_an_event_that_stock_repeats_is_explained(engine, scorer, stock):
    """A scorer that is wrong in one place of a few answers: stock itself writes these tokens."""

    class Wrong(EngineScorer):
        def score(self, answers, on_scored=lambda n: None):
            scores = super().score(answers, on_scored)
            for score in scores[:NUM_WRONG]:
                score.argmax_ids[0] += 1
                score.argmax_logprobs[0] = 0.0
                score.logprobs[0] = -2.0
            return scores

    judged = Wrong(engine, drafter="dflash2")
    arm = score_arm(stock, judged, RULES, "stock")
    first = arm.answers[0]
    # On another path of stock's, so that its own path explains nothing.
    other = replace(first, output_ids=[first.output_ids[0] + 1, *first.output_ids[1:]])
    moved = replace(arm, answers=(other, *arm.answers[1:]))
    verdict = audit(stock, judged, rules=RULES, stock=moved)
    assert [event.explanation for event in verdict.events] == ["stock repeats it", "stock path"]
    same = audit(stock, judged, rules=RULES, stock=stock)
    assert {event.explanation for event in same.events} == {"stock path"}
    assert same.passed is True and same.counts["system"]["large_events"] == NUM_WRONG


def spoil(stock, number, **changes):
    return [replace(answer, **changes) if i == number else answer for i, answer in enumerate(stock)]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"output_ids": []}, "0 output tokens"),
        ({"prompt_ids": []}, "0 prompt"),
        ({"finish_reason": None}, "cut or refused"),
        ({"finish_reason": "cancelled"}, "cut or refused"),
        ({"finish_reason": "length", "output_ids": [5, 6, 7]}, "the stream was cut"),
        ({"finish_reason": "stop", "output_ids": [5, 6, 7]}, "without end-of-text"),
        ({"output_ids": [5] * (MAX_TOKENS + 1)}, "expected at most"),
        ({"output_ids": [4096] * MAX_TOKENS, "finish_reason": "length"}, "another tokenizer"),
        ({"output_ids": [-3] * MAX_TOKENS, "finish_reason": "length"}, "another tokenizer"),
        ({"request_id": "chat-0"}, "two answers to one request"),
        ({"prompt_ids": [5, 6]}, "other prompts"),
        ({"prompt_ids": [5] * 9000}, "the scorer refuses it"),
    ],
)
def test_what_cannot_be_judged_is_unavailable(changes, cause, scorer, stock, scored_stock):
    verdict = audit(spoil(stock, 3, **changes), scorer, rules=RULES, stock=scored_stock)
    assert verdict.passed is None and verdict.word == "unavailable"
    assert cause in verdict.reasons[0] and verdict.reasons[0].startswith("audit unavailable: ")


def test_too_little_is_unavailable(scorer, stock, scored_stock):
    for outputs in (stock[:0], stock[:5]):
        assert audit(outputs, scorer, rules=RULES, stock=scored_stock).passed is None
    assert audit(stock, scorer, rules=replace(RULES, min_tokens=20_000), stock=scored_stock).passed is None


def test_another_tokenizer_is_unavailable(engine, scorer, stock, scored_stock):
    assert (
        audit(
            stock, scorer, rules=RULES, stock=scored_stock, tokenizer=hash_tokenizer(4096, engine.token_bytes)
        ).passed
        is True
    )
    verdict = audit(stock, scorer, rules=RULES, stock=scored_stock, tokenizer="0" * 64)
    assert verdict.passed is None and "tokenizer" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda logprobs: [*logprobs[:-1], float("nan")], "NaN"),
        (lambda logprobs: [*logprobs[:-1], float("-inf")], "infinite"),
        (lambda logprobs: logprobs[:-1], "missing"),
        (lambda logprobs: [], "missing"),
        (lambda logprobs: [0.5, *logprobs[1:]], "certainty"),
    ],
)
def test_scores_that_are_none_are_unavailable(change, cause, engine, stock, scored_stock, monkeypatch):
    honest = engine.score

    def score(ids, start, *args, **kwargs):
        result = honest(ids, start, *args, **kwargs)
        return ScoreResult(
            start, tuple(change(list(result.logprobs))), result.argmax_ids, result.argmax_logprobs
        )

    monkeypatch.setattr(engine, "score", score)
    verdict = audit(stock, EngineScorer(engine), rules=RULES, stock=scored_stock)
    assert verdict.passed is None and cause in verdict.reasons[0]


def test_a_verdict_has_three_values_and_one_version():
    verdict = Verdict.unavailable("no scorer")
    with pytest.raises(TypeError, match="ask for passed"):
        bool(verdict)
    data = verdict.to_json()
    for change in ({"version": 2}, {"format": "other"}, {"passed": "yes"}, {"surprise": 1}):
        with pytest.raises(ConfigError):
            Verdict.from_json(data | change)
    del data["events"]
    with pytest.raises(ConfigError, match="damaged"):
        Verdict.from_json(data)


def test_delta_is_rounded_up_to_an_eighth():
    assert delta_from_margins([0.232, 0.1]) == 0.25
    assert delta_from_margins([0.25]) == 0.25 and delta_from_margins([0.2501]) == 0.375
    assert delta_from_margins([]) == 0.125
    with pytest.raises(ConfigError):
        delta_from_margins([float("nan")])
    with pytest.raises(ConfigError):
        Rules(delta=0.3)


def test_an_audit_must_be_able_to_reject():
    """Fewer requests than the event rule needs are refused before anything is decoded."""
    fewest = Rules().fewest_requests
    assert fewest == 6
    assert event_test(fewest, 0, 1000, 1000, Rules().event_level).is_rejected
    assert not event_test(fewest - 1, 0, 1000, 1000, Rules().event_level).is_rejected
    assert Rules(min_requests=6).min_requests == 6
    with pytest.raises(ConfigError, match="min_requests: got 5, expected at least 6"):
        Rules(min_requests=5)
    assert Rules(event_level=0.05, min_requests=5).fewest_requests == 5


def test_a_request_refused_by_stock_is_an_error_of_forcing(scorer):
    too_long = Answer("x", [5] * 8000, [5] * 500, "length", 500)
    with pytest.raises(ForcingError, match="at most 8192"):
        score_arm([too_long], scorer, RULES)
    assert np.isfinite(scorer.score([Answer("y", [5], [6], "length")])[0].margins).all()
