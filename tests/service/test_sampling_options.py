"""Every sampling option through the endpoint: it reaches the engine, it acts, and drafts change nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import Engine
from specpilot_service.app import create_app
from specpilot_service.planning import sampling_of
from specpilot_service.schemas import ChatRequest
from specpilot_service.settings import Settings
from tests.service.sse import parse_events
from tests.service.tiny_engine import TinyEngine

CHAT = "/v1/chat/completions"
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Tom", "Ann"]},
        "apples": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "apples"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}


def body(model: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": QUESTION}]
    return {"model": model, "messages": messages, "temperature": 0, "max_tokens": 32} | fields


def post(client: TestClient, **request: Any) -> dict[str, Any]:
    response = client.post(CHAT, json=request)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(answer: dict[str, Any], index: int = 0) -> str:
    return answer["choices"][index]["message"]["content"]


def test_every_field_reaches_the_engine() -> None:
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "frequency_penalty": -0.5,
        "presence_penalty": 0.25,
        "seed": 7,
    }
    request = body("m", top_k=40, logit_bias={"7": -1, "12": 2.5}, response_format=FORMAT, **fields)
    params = sampling_of(ChatRequest.model_validate(request), max_new_tokens=9, top_logprobs=2)
    for name, value in fields.items():
        assert getattr(params, name) == value, name
    assert (params.top_k, params.logit_bias) == (40, {7: -1.0, 12: 2.5})
    assert params.json_schema is not None and json.loads(params.json_schema) == PERSON
    assert list(json.loads(params.json_schema)["properties"]) == [
        "name",
        "apples",
    ]  # in the order of the client


@pytest.mark.parametrize("top_k", [None, 0, -1])
def test_all_ways_to_ask_for_all_tokens(top_k: int | None) -> None:
    request = ChatRequest.model_validate(body("m", top_k=top_k))
    assert sampling_of(request, max_new_tokens=1, top_logprobs=None).top_k == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 1.5},
        {"frequency_penalty": 1.5},
        {"presence_penalty": 2.0},
        {"logit_bias": {"40": 20, "41": 19.5}},
        {"response_format": FORMAT},
        {"response_format": {"type": "json_object"}},
        {"temperature": 2, "seed": 11, "min_p": 0.2},
        {"temperature": 2, "seed": 11, "top_k": 2},
    ],
)
def test_options_act(client: TestClient, model: str, fields: dict[str, Any]) -> None:
    neutral = {name: fields[name] for name in ("temperature", "seed") if name in fields}
    assert text_of(post(client, **body(model, **fields))) != text_of(post(client, **body(model, **neutral)))


@pytest.mark.parametrize("drafter", ["dflash2", "none"])
@pytest.mark.parametrize("temperature", [0, 1.3])
def test_answers_follow_their_schema(
    client: TestClient, model: str, drafter: str, temperature: float
) -> None:
    request = body(
        model,
        response_format=FORMAT,
        temperature=temperature,
        seed=4,
        n=3,
        max_tokens=128,
        speculation={"drafter": drafter},
    )
    for choice in post(client, **request)["choices"]:
        answer = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop"
        assert answer.keys() == PERSON["properties"].keys() and answer["name"] in ("Tom", "Ann")  # type: ignore[attr-defined]
        assert 0 <= answer["apples"] <= 99


def test_a_request_can_combine_everything(client: TestClient, model: str) -> None:
    fields: dict[str, Any] = {
        "response_format": {"type": "json_object"},
        "frequency_penalty": 0.6,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.2,
        "logit_bias": {"50": -2},
        "logprobs": True,
        "top_logprobs": 2,
    }
    answers = [
        post(client, **body(model, **fields, speculation={"drafter": name})) for name in ("none", "dflash2")
    ]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert text_of(answers[0]).startswith("{")


def test_neutral_values_change_nothing(client: TestClient, model: str) -> None:
    neutral: dict[str, Any] = {
        "top_k": -1,
        "min_p": 0,
        "repetition_penalty": 1,
        "frequency_penalty": 0.0,
        "presence_penalty": 0,
        "logit_bias": {},
        "response_format": {"type": "text"},
        "return_tokens_as_token_ids": None,
    }
    nothing = dict.fromkeys(neutral)
    plain = post(client, **body(model))["choices"]
    assert post(client, **body(model, **neutral))["choices"] == plain
    assert post(client, **body(model, **nothing))["choices"] == plain


def test_choices_have_streams_of_their_own_and_the_first_is_that_of_n_1(
    client: TestClient, model: str
) -> None:
    def texts(seed: int, n: int) -> list[str]:
        answer = post(client, **body(model, temperature=2, seed=seed, n=n, max_tokens=48))
        return [choice["message"]["content"] for choice in answer["choices"]]

    three = texts(11, 3)
    assert len(set(three)) == 3 and three == texts(11, 3)
    assert texts(11, 1) == three[:1]
    # Neighbouring seeds share no stream; one short answer may come twice by chance.
    assert texts(12, 3)[:2] != three[1:]


def test_stream_of_several_choices_carries_their_index(client: TestClient, model: str) -> None:
    request = body(model, temperature=2, seed=11, n=3, max_tokens=12)
    whole = post(client, **request)
    events, _ = parse_events(client.post(CHAT, json=request | {"stream": True}).content)
    for choice in whole["choices"]:
        parts = [c for event in events for c in event["choices"] if c["index"] == choice["index"]]
        assert "".join(part["delta"].get("content", "") for part in parts) == choice["message"]["content"]
        assert [p["finish_reason"] for p in parts][-1] == choice["finish_reason"]


def test_logprobs_are_the_models_own(client: TestClient, model: str, bundled_engine: Engine) -> None:
    """Penalties and bias move the choice, not the log-probabilities shown."""
    fields = {"frequency_penalty": 2.0, "logit_bias": {"40": 6}, "logprobs": True, "top_logprobs": 4}
    request = body(model, max_tokens=10, return_tokens_as_token_ids=True, **fields)
    entries = post(client, **request)["choices"][0]["logprobs"]["content"]
    ids = [int(entry["token"].removeprefix("token_id:")) for entry in entries]
    prompt = bundled_engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    score = bundled_engine.score([*prompt, *ids], len(prompt), num_top=4)
    assert [entry["logprob"] for entry in entries] == pytest.approx(score.logprobs, abs=1e-9)
    for entry, top in zip(entries, score.top, strict=True):
        assert [t["token"] for t in entry["top_logprobs"]] == [f"token_id:{token_id}" for token_id, _ in top]


def test_bytes_of_half_characters() -> None:
    """Every byte is a token of the tiny engine: the bytes of all entries together are the answer's text."""
    engine = TinyEngine()
    request = {"model": "tiny-ngram", "messages": [{"role": "user", "content": "The caf"}], "temperature": 0}
    with TestClient(create_app(Settings(), engine)) as client:
        prompt = engine.tokenize("日本語")
        answer = post(client, **request, logprobs=True, top_logprobs=3, max_tokens=40)
        content = answer["choices"][0]["logprobs"]["content"]
        assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == text_of(answer)
        echo = {"model": "tiny-ngram", "prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 0}
        logprobs = client.post("/v1/completions", json=echo).json()["choices"][0]["logprobs"]
        assert logprobs["tokens"] == [f"token_id:{byte}" for byte in prompt]
    halves = [entry for entry in content if entry["token"].startswith("token_id:")]
    assert all(len(entry["bytes"]) == 1 or entry is content[-1] for entry in halves)
