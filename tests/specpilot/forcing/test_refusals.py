"""Scorers, servers and arms that are wrong: an audit of them is unavailable, never accepted and never an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from specpilot.errors import ConfigError, ForcingError
from specpilot.forcing import Answer, Rules, ScorerDescription, Verdict, audit
from specpilot.forcing.probe import Probe, check_probe, make_probe
from specpilot.forcing.scorers.completions import CompletionsScorer
from specpilot.forcing.scorers.sglang import SglangScorer
from specpilot.forcing.scores import TokenScores
from specpilot.forcing.served import served_answers

VOCAB, EOS, LENGTH = 50, 49, 40
BEST, OTHER = -0.1, -9.0
ABOUT = ScorerDescription("fake", "m", "fp32", VOCAB, (EOS,))
RULES = Rules(delta=0.125, min_tokens=300)


def follow(token_id: int) -> int:
    """The target: what comes after a token."""
    return (token_id * 7 + 3) % 48


def score_of(ids: list[int], start: int) -> TokenScores:
    argmax = np.array([follow(i) for i in ids[start - 1 : -1]])
    logprobs = np.where(argmax == np.array(ids[start:]), BEST, OTHER)
    return TokenScores(logprobs, argmax, np.full(len(argmax), BEST))


class Fake:
    """A scorer that knows the target."""

    about = ABOUT

    def describe(self) -> ScorerDescription:
        return self.about

    def score(self, answers: Any, on_scored: Any = lambda n: None) -> list[TokenScores]:
        return [score_of([*a.prompt_ids, *a.output_ids], len(a.prompt_ids)) for a in answers]

    def rescore(self, ids: Any, index: int) -> tuple[int, float]:
        score = score_of(list(ids), index)
        return int(score.argmax_ids[0]), float(score.margins[0])

    def continue_greedily(self, ids: Any, num_tokens: int) -> list[int]:
        written = [ids[-1]]
        for _ in range(num_tokens):
            written.append(follow(written[-1]))
        return written[1:]


def answer_of(number: int) -> Answer:
    prompt = [number + 1, number + 2]
    return Answer(f"r{number:02d}", prompt, Fake().continue_greedily(prompt, LENGTH), "length", LENGTH)


ANSWERS = [answer_of(number) for number in range(20)]
GARBAGE = [replace(a, output_ids=[(i + 1) % 48 for i in a.output_ids]) for a in ANSWERS]


class Server:
    """``JsonServer`` that answers by a function of path and body."""

    url = "fake"

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def get(self, path: str) -> Any:
        return {"data": [{"id": "m"}]}

    def post(self, path: str, body: Any) -> Any:
        return self.reply(body)


def echo(body: Any, *, label: Any = "token_id:{}".format, best: Any = None) -> Any:
    """An honest echo; ``best`` (the token, the argmax, its log-probability) names the most likely token otherwise."""
    ids = list(body["prompt"])
    score = score_of(ids, 1)
    named = best or (lambda token, value, argmax, top: (argmax, top))
    tops: list[Any] = [None]
    for row in zip(
        ids[1:],
        score.logprobs.tolist(),
        score.argmax_ids.tolist(),
        score.argmax_logprobs.tolist(),
        strict=True,
    ):
        token_id, value = named(*row)
        tops.append({label(token_id): value})
    logprobs = {
        "tokens": [label(i) for i in ids],
        "token_logprobs": [None, *score.logprobs.tolist()],
        "top_logprobs": tops,
    }
    return {"choices": [{"logprobs": logprobs}]}


def completions(about: ScorerDescription | None = ABOUT, **change: Any) -> CompletionsScorer:
    server: Any = Server(lambda body: echo(body, **change))
    return CompletionsScorer(server, about=about)


def verdict_of(outputs: Any, scorer: Any = None, stock: Any = None) -> Verdict:
    return audit(outputs, scorer or Fake(), rules=RULES, stock=ANSWERS if stock is None else stock)


def assert_unavailable(verdict: Verdict, cause: str) -> None:
    assert verdict.passed is None and cause in verdict.reasons[0], (verdict.word, verdict.reasons)


def test_the_fakes_themselves_are_judged_rightly() -> None:
    for scorer in (Fake(), completions()):
        assert verdict_of(ANSWERS, scorer).passed is True
        assert verdict_of(GARBAGE, scorer).passed is False


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    save_file({"w": torch.ones(1)}, tmp_path / "model.safetensors")
    mixed = [
        replace(a, output_ids=[i if n % 3 else 0 for n, i in enumerate(a.output_ids)]) for a in ANSWERS[:4]
    ]
    return make_probe("m", mixed, Fake(), tmp_path)


def test_a_server_that_calls_every_token_its_argmax_fails_the_probe(probe: Probe) -> None:
    assert check_probe(probe, completions(), 1e-3) < 1e-9
    own = completions(best=lambda token, value, argmax, top: (token, value))
    assert (
        verdict_of(GARBAGE, own).passed is True
    )  # Such a scorer accepts garbage: the probe is what stops it.
    with pytest.raises(ForcingError, match=r"differ by 8\.9 nats"):
        check_probe(probe, own, 1e-3)
    with pytest.raises(ForcingError, match="as most likely at token 0"):
        check_probe(probe, completions(best=lambda token, value, argmax, top: (token, top)), 1e-3)


def test_a_probe_without_improbable_tokens_is_no_probe(probe: Probe, tmp_path: Path) -> None:
    with pytest.raises(ForcingError, match="0 improbable of"):
        make_probe("m", ANSWERS[:4], Fake(), tmp_path)
    empty = replace(probe, answers=(), logprobs=(), argmax_ids=(), argmax_logprobs=())
    with pytest.raises(ForcingError, match="0 improbable of 0"):
        check_probe(empty, Fake(), 1e-3)
    with pytest.raises(ForcingError, match="scores of 0 texts"):
        check_probe(probe, type("Silent", (Fake,), {"score": lambda self, answers: []})(), 1e-3)


def test_a_stock_that_is_as_wrong_as_the_system_is_unavailable() -> None:
    assert_unavailable(verdict_of(GARBAGE, stock=GARBAGE), "stock does not agree with the scorer")
    # Mismatches below the limit, but of 8.9 nats each.
    spoilt = [replace(a, output_ids=[*a.output_ids[:-1], 48]) for a in ANSWERS]
    assert_unavailable(verdict_of(spoilt, stock=spoilt), "2.50% are large-margin events")


def test_tokens_named_by_text_or_beyond_the_vocabulary_are_unavailable() -> None:
    assert_unavailable(verdict_of(ANSWERS, completions(label="text {}".format)), "expected token_id:N")
    assert_unavailable(verdict_of(ANSWERS, completions(label="token_id:-{}".format)), "expected token_id:N")
    far = completions(best=lambda token, value, argmax, top: (VOCAB, top))
    assert_unavailable(verdict_of(ANSWERS, far), "token id 50 as the most likely one, expected 0 to 49")


@pytest.mark.parametrize("answer", [(VOCAB, 1.0), (-1, 1.0), (3, float("nan")), (3, -2.0)])
def test_an_event_is_not_explained_by_scores_that_are_none(answer: Any) -> None:
    class Odd(Fake):
        def rescore(self, ids: Any, index: int) -> tuple[int, float]:
            return answer

    wrong = [replace(ANSWERS[0], output_ids=[*ANSWERS[0].output_ids[:-1], 48]), *ANSWERS[1:]]
    assert verdict_of(wrong).events[0].is_unexplained
    assert_unavailable(verdict_of(wrong, Odd()), "event at token 39")


def test_cut_streams_are_unavailable_where_nothing_tells_them_from_whole_ones() -> None:
    cut = [replace(a, output_ids=a.output_ids[:30], finish_reason="stop") for a in ANSWERS]
    assert_unavailable(verdict_of(cut, completions(about=None)), "does not tell its end-of-text ids")
    assert_unavailable(verdict_of(cut), "without end-of-text")
    open_ended = [replace(a, max_new_tokens=None) for a in cut]
    assert_unavailable(
        verdict_of([replace(a, finish_reason="length") for a in open_ended]), "without max_new_tokens"
    )
    server: Any = Server(None)
    server.get = lambda path: {}
    assert SglangScorer(server).describe().eos_ids == ()
    assert SglangScorer(server, vocab_size=VOCAB, eos_ids=[EOS]).describe().eos_ids == (EOS,)


MALFORMED: list[Any] = [
    {"choices": []}, {"choices": None}, {"choices": ["x"]}, {}, [], None, "text", 3,
    {"choices": [{"logprobs": {}}]}, {"choices": [{"token_ids": None}]}, {"choices": [{"token_ids": "abc"}]},
    {"choices": [{"token_ids": ["5"]}]}, {"choices": [{"token_ids": [None]}]}, {"choices": [{"token_ids": [1.5]}]},
    {"meta_info": []}, {"meta_info": {}, "output_ids": ["5"]}, {"meta_info": {}, "output_ids": None},
]  # fmt: skip


@pytest.mark.parametrize("reply", MALFORMED, ids=repr)
def test_malformed_answers_of_a_server_are_named(reply: Any) -> None:
    server: Any = Server(lambda body: reply)
    for model in ("m", None):
        with pytest.raises(ForcingError):
            served_answers(server, [("a", [1])], 4, model=model)
    assert verdict_of(ANSWERS, CompletionsScorer(server, about=ABOUT)).passed is None
    server.get = lambda path: {}
    sglang = SglangScorer(server, vocab_size=VOCAB, eos_ids=[EOS])
    assert verdict_of(ANSWERS, sglang).passed is None
    for scorer in (CompletionsScorer(server, "m", about=ABOUT), sglang):
        with pytest.raises(ForcingError):
            scorer.continue_greedily([1], 2)


@pytest.mark.parametrize("ids", [None, "abc", 7, ["5"], [None], [1.5], [True], [[1]]])
def test_answers_whose_ids_are_none_are_unavailable(ids: Any) -> None:
    for field in ("output_ids", "prompt_ids"):
        spoilt = [replace(ANSWERS[0], **{field: ids}), *ANSWERS[1:]]
        assert_unavailable(verdict_of(spoilt), "system answer 'r00'")
        assert_unavailable(verdict_of(ANSWERS, stock=spoilt), "stock answer 'r00'")


def test_requests_left_out_or_others_are_unavailable() -> None:
    assert_unavailable(verdict_of(ANSWERS[:10]), "10 requests of the other arm have no answer ('r10', 'r11'")
    more = [*ANSWERS, replace(ANSWERS[0], request_id="new")]
    assert_unavailable(verdict_of(more), "stock: 1 requests of the other arm have no answer ('new')")
    assert_unavailable(verdict_of([*ANSWERS[:-1], replace(ANSWERS[0], request_id="r19")]), "other prompts")


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": 1e6}, {"delta": float("nan")}, {"min_tokens": 1}, {"min_requests": 2}, {"rate_limit": 0.4},
        {"rate_level": 1e-9}, {"event_level": 1e-9}, {"num_looks": 10**6}, {"max_audited": 0}, {"min_tokens": 300.5},
        {"min_requests": True}, {"rate_limit": float("nan")}, {"context_tokens": -1},
    ],
    ids=repr,
)  # fmt: skip
def test_rules_that_decide_nothing_are_refused(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        Rules(**changes)


def test_a_text_that_is_not_that_of_its_ids_is_refused() -> None:
    def decode(ids: Any) -> str:
        return "".join(chr(97 + i) for i in ids)

    choice: dict[str, Any] = {"token_ids": [0, 1, 2], "text": "abc", "finish_reason": "length"}
    server: Any = Server(
        lambda body: {"choices": [choice], "meta_info": {}, "output_ids": [0, 1, 2]} | choice
    )
    for model in ("m", None):
        choice["text"] = "abc"
        [answer] = served_answers(server, [("a", [1])], 3, model=model, decode=decode)
        assert answer.output_ids == (0, 1, 2)
        choice["text"] = "abX"
        with pytest.raises(ForcingError, match="differs from its token ids at character 2"):
            served_answers(server, [("a", [1])], 3, model=model, decode=decode)
    del choice["text"]
    with pytest.raises(ForcingError, match="has no text"):
        served_answers(server, [("a", [1])], 3, model="m", decode=decode)
    choice |= {"text": "abc", "prompt_token_ids": [9]}
    with pytest.raises(ForcingError, match="another prompt"):
        served_answers(server, [("a", [1])], 3, model="m", decode=decode)
