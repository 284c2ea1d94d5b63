"""The demo's verdict: equal ids are told from unequal ones, and a departure is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from specpilot.bench.demo import find_divergence, num_answers, run_demo
from specpilot.bench.demo_prompts import DEMO_PROMPTS
from specpilot.engines.base import CancelToken, Chunk, EngineDescription, GenerateRequest
from specpilot.errors import Unsupported
from tests.service.tiny_engine import TinyEngine

PROMPTS = ("Tom has", "The owl")


class LyingEngine(TinyEngine):
    """Changes one token of speculative answers."""

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        position = 0
        for chunk in super().generate(request, cancel):
            ids = list(chunk.token_ids)
            if request.drafter is not None and position <= 5 < position + len(ids):
                ids[5 - position] = ord("#")
            position += len(ids)
            yield replace(chunk, token_ids=tuple(ids))


class Undrafted(TinyEngine):
    def describe(self) -> EngineDescription:
        return replace(super().describe(), drafters=(), default_drafter=None)


def test_honest_engine() -> None:
    done: list[int] = []
    report = run_demo(TinyEngine(), TinyEngine(), PROMPTS, 32, lambda: done.append(1))
    assert report["ids_equal"] is True
    assert report["judge"]["unequal"] == report["serve"]["first_divergences"] == []
    assert report["drafters"]["bigram"]["tau"] > 1 and report["drafters"]["bigram"]["speedup_over_ar"] > 0
    assert len(done) == num_answers(len(PROMPTS), 1) == 12


def test_unequal_ids_in_judge_mode_are_found() -> None:
    report = run_demo(LyingEngine(), TinyEngine(), PROMPTS, 32)
    assert report["ids_equal"] is False
    assert [
        (place["prompt_index"], place["drafter"], place["position"]) for place in report["judge"]["unequal"]
    ] == [
        (0, "bigram", 5),
        (1, "bigram", 5),
    ]
    assert report["serve"]["first_divergences"] == []


def test_departures_of_serve_mode_are_listed_with_their_margin() -> None:
    report = run_demo(TinyEngine(), LyingEngine(), PROMPTS, 32)
    assert report["ids_equal"] is True
    places = report["serve"]["first_divergences"]
    assert [(place["drafter"], place["position"], place["other_id"]) for place in places] == [
        ("bigram", 5, 35)
    ] * 2
    assert all(place["margin_nats"] > 1 for place in places)


def test_margin_is_the_difference_of_teacher_forced_logprobs() -> None:
    engine, prompt, judged = TinyEngine(), list(b"Tom ha"), list(b"s 3 a")
    other = [*judged[:2], ord("4"), *judged[3:]]
    found = find_divergence(engine, prompt, judged, other)
    context = [*prompt, *judged[:2]]
    ours, theirs = (
        engine.score([*context, token], len(context)).logprobs[0] for token in (judged[2], ord("4"))
    )
    assert found == {"position": 2, "judge_id": judged[2], "other_id": ord("4"), "margin_nats": ours - theirs}


@pytest.mark.parametrize(("judged", "other"), [([1, 2, 3], [1, 2]), ([1, 2], [1, 2, 3])])
def test_answer_that_ends_sooner_has_no_margin(judged: list[int], other: list[int]) -> None:
    found = find_divergence(TinyEngine(), [84], judged, other)
    assert found["position"] == 2 and found["margin_nats"] is None


def test_model_without_a_drafter_proves_nothing() -> None:
    with pytest.raises(Unsupported, match="drafter"):
        run_demo(Undrafted(), Undrafted(), PROMPTS, 8)


def test_built_in_prompts() -> None:
    assert len(DEMO_PROMPTS) == len(set(DEMO_PROMPTS)) == 6
