"""Text completions on the bundled model, and the prompt scores that token forcing needs."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import Engine
from tests.service.sse import parse_events

PATH = "/v1/completions"
PROMPT = "Tom has 3 apples and buys 4 more."


def body(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "prompt": PROMPT, "temperature": 0, "max_tokens": 12} | fields


def post(client: TestClient, **request: Any) -> dict[str, Any]:
    response = client.post(PATH, json=request)
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: TestClient, **request: Any) -> list[dict[str, Any]]:
    response = client.post(PATH, json=request | {"stream": True})
    assert response.status_code == 200, response.text
    events, is_done = parse_events(response.content)
    assert is_done
    return events


def test_every_form_of_prompt_gives_the_same_answer(
    client: TestClient, model: str, bundled_engine: Engine
) -> None:
    ids = bundled_engine.tokenize(PROMPT)
    text = post(client, **body(model))["choices"][0]["text"]
    for prompt in ([PROMPT], ids, [ids]):
        assert [choice["text"] for choice in post(client, **body(model, prompt=prompt))["choices"]] == [text]
    two = post(client, **body(model, prompt=[PROMPT, "def add(a, b):"], n=2))
    assert [choice["index"] for choice in two["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in two["choices"][:2]] == [text, text]
    other = bundled_engine.tokenize("def add(a, b):")
    assert two["usage"]["prompt_tokens"] == len(ids) + len(other)
    assert two["usage"]["completion_tokens"] == 4 * 12


def test_sixteen_tokens_by_default(client: TestClient, model: str) -> None:
    request = body(model)
    del request["max_tokens"]
    assert post(client, **request)["usage"]["completion_tokens"] == 16


def test_stream_carries_the_same_answer(client: TestClient, model: str) -> None:
    request = body(model, prompt=[PROMPT, "def add(a, b):"], echo=True, logprobs=1)
    whole = post(client, **request)
    events = stream(client, **request, stream_options={"include_usage": True})
    assert events[-1]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        parts = [c for event in events for c in event["choices"] if c["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert parts[-1]["finish_reason"] == choice["finish_reason"]
        for name, values in choice["logprobs"].items():
            joined = [item for part in parts if part["logprobs"] for item in part["logprobs"][name]]
            assert joined == values, name


def test_echoed_prompt_is_scored_by_teacher_forcing(
    client: TestClient, model: str, bundled_engine: Engine
) -> None:
    ids = bundled_engine.tokenize(PROMPT)
    choice = post(client, **body(model, prompt=ids, echo=True, logprobs=1, max_tokens=0))["choices"][0]
    score = bundled_engine.score(ids, 1)
    logprobs = choice["logprobs"]
    assert choice["text"] == PROMPT and choice["finish_reason"] == "length"
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1:] == pytest.approx(score.logprobs, abs=1e-6)
    best = [max(top.values()) for top in logprobs["top_logprobs"][1:]]
    assert best == pytest.approx(score.argmax_logprobs, abs=1e-6)
    assert all(len(top) in (1, 2) for top in logprobs["top_logprobs"][1:])  # the token itself in any case
    assert logprobs["tokens"] == [bundled_engine.detokenize([token_id]) for token_id in ids]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert PROMPT[offset:].startswith(token)


@pytest.mark.parametrize("num_top", [0, 1, 5, 20])
def test_echo_gives_as_many_alternatives_as_asked(
    client: TestClient, model: str, bundled_engine: Engine, num_top: int
) -> None:
    """What an evaluation harness sends: prompt ids, echo, one token; it looks for the prompt among the best."""
    ids = bundled_engine.tokenize(PROMPT)
    request = body(model, prompt=ids, echo=True, logprobs=num_top, max_tokens=1)
    logprobs = post(client, **request)["choices"][0]["logprobs"]
    score = bundled_engine.score(ids, 1, num_top=num_top)
    assert len(logprobs["tokens"]) == len(ids) + 1
    pairs = zip(ids[1:], score.logprobs, score.top, logprobs["top_logprobs"][1 : len(ids)], strict=True)
    for token_id, own, best, shown in pairs:
        assert len(best) == num_top
        expected = {bundled_engine.detokenize([i]): value for i, value in (*best, (token_id, own))}
        assert shown == pytest.approx(expected, abs=1e-9)
    joined = [token for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True) if top]
    assert all(token in top for token, top in zip(joined, logprobs["top_logprobs"][1:], strict=True))


def test_tokens_can_be_shown_by_id(client: TestClient, model: str, bundled_engine: Engine) -> None:
    ids = bundled_engine.tokenize(PROMPT)
    request = body(model, prompt=ids, echo=True, logprobs=3, max_tokens=4, return_tokens_as_token_ids=True)
    logprobs = post(client, **request)["choices"][0]["logprobs"]
    assert logprobs["tokens"][: len(ids)] == [f"token_id:{token_id}" for token_id in ids]
    keys = [key for top in logprobs["top_logprobs"][1:] for key in top]
    assert all(key.startswith("token_id:") for key in keys)


def test_generated_logprobs_equal_their_scores(
    client: TestClient, model: str, bundled_engine: Engine
) -> None:
    """Decoding and forcing the same tokens give one number, up to float32 rounding."""
    choice = post(client, **body(model, echo=True, logprobs=0, max_tokens=10))["choices"][0]
    prompt = bundled_engine.tokenize(PROMPT)
    decoded = post(client, **body(model, logprobs=0, max_tokens=10))["choices"][0]
    assert choice["logprobs"]["token_logprobs"][len(prompt) :] == decoded["logprobs"]["token_logprobs"]
    whole = prompt + bundled_engine.tokenize(decoded["text"])
    if len(whole) == len(prompt) + 10:  # the text tokenizes back to the same number of tokens
        forced = bundled_engine.score(whole, len(prompt)).logprobs
        assert decoded["logprobs"]["token_logprobs"] == pytest.approx(forced, abs=1e-3)


def test_offsets_point_at_their_tokens(client: TestClient, model: str) -> None:
    choice = post(client, **body(model, logprobs=2))["choices"][0]
    logprobs = choice["logprobs"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("token_id:"):
            assert choice["text"][offset:].startswith(token)
    assert all(len(top) in (2, 3) for top in logprobs["top_logprobs"])


def test_one_token_prompt_can_be_scored(client: TestClient, model: str) -> None:
    choice = post(client, **body(model, prompt=[[65]], echo=True, logprobs=1, max_tokens=0))["choices"][0]
    assert choice["logprobs"]["token_logprobs"] == [None]
