"""Every bad request gets a clear OpenAI-shaped error, and the server serves on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import Engine

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


# Few bytes, but more work than any machine has.
BOMB = {"type": "integer", "multipleOf": 123456789}


def schema_format(schema: Any, name: str = "answer") -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


def check(response: Any, status: int, code: str, param: str | None) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert list(response.json()) == ["error"]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param), error
    assert error["message"]
    return error


CHAT_CASES: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"model": "gpt-none"}, 404, "model_not_found", "model"),
    ({"model": 3}, 400, "invalid_value", "model"),
    ({"messages": []}, 400, "invalid_value", "messages"),
    ({"messages": "Hello"}, 400, "invalid_value", "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "invalid_value", "messages.0.role"),
    ({"messages": [{"role": "user"}]}, 400, "missing_parameter", "messages.0.content"),
    ({"messages": [{"role": "user", "content": None}]}, 400, "invalid_value", "messages.0.content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "invalid_value",
        "messages.0.content",
    ),
    (
        {"messages": [{"role": "user", "content": "x", "name": "Al"}]},
        400,
        "unsupported_parameter",
        "messages.0.name",
    ),
    (
        {"messages": [{"role": "user", "content": "x", "mood": 1}]},
        400,
        "unknown_parameter",
        "messages.0.mood",
    ),
    ({"n": 0}, 400, "invalid_value", "n"),
    ({"n": 9}, 400, "invalid_value", "n"),
    ({"n": 1.5}, 400, "invalid_value", "n"),
    ({"n": True}, 400, "invalid_value", "n"),
    ({"max_tokens": -1}, 400, "invalid_value", "max_tokens"),
    ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    ({"max_tokens": "9"}, 400, "invalid_value", "max_tokens"),
    ({"max_tokens": 10**9}, 400, "context_length_exceeded", "messages"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, 400, "invalid_value", "max_tokens"),
    ({"temperature": "0.5"}, 400, "invalid_value", "temperature"),
    ({"temperature": -0.1}, 400, "invalid_value", "temperature"),
    ({"temperature": 2.1}, 400, "invalid_value", "temperature"),
    ({"temperature": float("nan")}, 400, "invalid_value", "temperature"),
    ({"temperature": float("inf")}, 400, "invalid_value", "temperature"),
    ({"top_p": 0}, 400, "invalid_value", "top_p"),
    ({"top_p": 1.01}, 400, "invalid_value", "top_p"),
    ({"seed": 2**63}, 400, "invalid_value", "seed"),
    ({"seed": 1.5}, 400, "invalid_value", "seed"),
    ({"stop": ["a"] * 17}, 400, "invalid_value", "stop"),
    ({"stop": ""}, 400, "invalid_value", "stop"),
    ({"stop": [1]}, 400, "invalid_value", "stop.0"),
    ({"stream": "yes"}, 400, "invalid_value", "stream"),
    ({"stream_options": {"include_usage": True}}, 400, "invalid_value", "stream_options"),
    ({"stream": True, "stream_options": {"x": 1}}, 400, "unknown_parameter", "stream_options.x"),
    ({"top_logprobs": 3}, 400, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, 400, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, 400, "invalid_value", "top_logprobs"),
    ({"logprobs": 1}, 400, "invalid_value", "logprobs"),
    ({"speculation": {"drafter": "eagle9"}}, 400, "invalid_value", "speculation.drafter"),
    ({"speculation": "dflash2"}, 400, "invalid_value", "speculation"),
    ({"speculation": {"drafter": "dflash2", "budget": 4}}, 400, "unknown_parameter", "speculation.budget"),
    ({"temprature": 0}, 400, "unknown_parameter", "temprature"),
    ({"top_k": -2}, 400, "invalid_value", "top_k"),
    ({"top_k": 1.5}, 400, "invalid_value", "top_k"),
    ({"top_k": True}, 400, "invalid_value", "top_k"),
    ({"min_p": -0.1}, 400, "invalid_value", "min_p"),
    ({"min_p": 1.1}, 400, "invalid_value", "min_p"),
    ({"min_p": "0.1"}, 400, "invalid_value", "min_p"),
    ({"repetition_penalty": 0}, 400, "invalid_value", "repetition_penalty"),
    ({"repetition_penalty": 2.5}, 400, "invalid_value", "repetition_penalty"),
    ({"frequency_penalty": 2.5}, 400, "invalid_value", "frequency_penalty"),
    ({"frequency_penalty": "1"}, 400, "invalid_value", "frequency_penalty"),
    ({"presence_penalty": -2.1}, 400, "invalid_value", "presence_penalty"),
    ({"presence_penalty": False}, 400, "invalid_value", "presence_penalty"),
    ({"presence_penalty": float("nan")}, 400, "invalid_value", "presence_penalty"),
    ({"logit_bias": {"5": 101}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"5": float("nan")}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"5": "1"}}, 400, "invalid_value", "logit_bias.5"),
    ({"logit_bias": {"5": True}}, 400, "invalid_value", "logit_bias.5"),
    ({"logit_bias": {"-5": 1}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"05": 1}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"five": 1}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"9" * 400: 1}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"999999": 1}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": [5, 1]}, 400, "invalid_value", "logit_bias"),
    ({"return_tokens_as_token_ids": 1}, 400, "invalid_value", "return_tokens_as_token_ids"),
    ({"response_format": "json"}, 400, "invalid_value", "response_format"),
    ({"response_format": {}}, 400, "missing_parameter", "response_format.type"),
    ({"response_format": {"type": "xml"}}, 400, "invalid_value", "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, 400, "invalid_value", "response_format"),
    (
        {"response_format": {"type": "json_object", "json_schema": {"name": "a", "schema": {}}}},
        400,
        "invalid_value",
        "response_format",
    ),
    (
        {"response_format": schema_format({}, name="a b")},
        400,
        "invalid_value",
        "response_format.json_schema.name",
    ),
    ({"response_format": schema_format([])}, 400, "invalid_value", "response_format.json_schema.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        400,
        "missing_parameter",
        "response_format.json_schema.schema",
    ),
    ({"response_format": schema_format({"type": "strnig"})}, 400, "invalid_json_schema", "response_format"),
    ({"response_format": schema_format({"not": {}})}, 400, "invalid_json_schema", "response_format"),
    (
        {"response_format": schema_format({"enum": ["x" * 70_000]})},
        400,
        "invalid_json_schema",
        "response_format",
    ),
    ({"response_format": schema_format(BOMB)}, 400, "invalid_json_schema", "response_format"),
    ({"response_format": {"type": "json_object"}, "ignore_eos": True}, 400, "invalid_value", "ignore_eos"),
    ({"tools": [{"type": "function"}]}, 400, "unsupported_parameter", "tools"),
    ({"tool_choice": "required"}, 400, "unsupported_parameter", "tool_choice"),
    ({"store": True}, 400, "unsupported_parameter", "store"),
    ({"modalities": ["audio"]}, 400, "unsupported_parameter", "modalities"),
]

TEXT_CASES: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"model": "gpt-none"}, 404, "model_not_found", "model"),
    ({"prompt": ""}, 400, "invalid_value", "prompt"),
    ({"prompt": []}, 400, "invalid_value", "prompt"),
    ({"prompt": [[]]}, 400, "invalid_value", "prompt"),
    ({"prompt": None}, 400, "invalid_value", "prompt"),
    ({"prompt": ["a", 1]}, 400, "invalid_value", "prompt"),
    ({"prompt": [True]}, 400, "invalid_value", "prompt"),
    ({"prompt": [-1]}, 400, "invalid_value", "prompt"),
    ({"prompt": [10**6]}, 400, "invalid_value", "prompt"),
    ({"prompt": [[1, 2], [10**6]]}, 400, "invalid_value", "prompt"),
    ({"prompt": ["a"] * 129}, 400, "invalid_value", "prompt"),
    ({"prompt": [1] * 100_000}, 400, "context_length_exceeded", "prompt"),
    ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    ({"max_tokens": -3}, 400, "invalid_value", "max_tokens"),
    ({"max_tokens": -3, "echo": True}, 400, "invalid_value", "max_tokens"),
    ({"logprobs": 21}, 400, "invalid_value", "logprobs"),
    ({"logprobs": -1}, 400, "invalid_value", "logprobs"),
    ({"logprobs": True}, 400, "invalid_value", "logprobs"),
    ({"logprobs": 21, "echo": True}, 400, "invalid_value", "logprobs"),
    ({"logit_bias": {"999999": 1}, "echo": True}, 400, "invalid_value", "logit_bias"),
    ({"response_format": schema_format({"not": {}})}, 400, "invalid_json_schema", "response_format"),
    ({"best_of": 2}, 400, "unsupported_parameter", "best_of"),
    ({"suffix": "end"}, 400, "unsupported_parameter", "suffix"),
    ({"messages": HELLO}, 400, "unknown_parameter", "messages"),
]


@pytest.mark.parametrize(
    ("fields", "status", "code", "param", "is_stream"),
    [
        (*case, is_stream)
        for case in CHAT_CASES
        for is_stream in ((False,) if case[0].keys() & {"stream", "stream_options"} else (False, True))
    ],
)
def test_bad_chat_request(
    client: TestClient,
    model: str,
    fields: dict[str, Any],
    status: int,
    code: str,
    param: str | None,
    is_stream: bool,
) -> None:
    request = {"model": model, "messages": HELLO} | ({"stream": True} if is_stream else {}) | fields
    # json.dumps and not the client's encoder: it writes NaN and Infinity as careless clients do.
    response = client.post(CHAT, content=json.dumps(request), headers={"Content-Type": "application/json"})
    error = check(response, status, code, param)
    if code == "model_not_found":
        assert model in error["message"]


@pytest.mark.parametrize(("fields", "status", "code", "param"), TEXT_CASES)
def test_bad_text_request(
    client: TestClient, model: str, fields: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    check(client.post(TEXT, json={"model": model, "prompt": "Hello"} | fields), status, code, param)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\x80\x81",
        b'{"model": "x", "prompt": "\xff"}',
        b"[" * 100_000,
        b'{"\\ud800": 1}',
    ],
)
def test_body_that_is_no_request(client: TestClient, content: bytes) -> None:
    response = client.post(TEXT, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_lone_surrogates_are_refused(client: TestClient, model: str) -> None:
    content = json.dumps({"model": model, "prompt": "\ud800"})
    response = client.post(TEXT, content=content, headers={"Content-Type": "application/json"})
    check(response, 400, "invalid_value", "prompt")


def test_form_data_is_refused(client: TestClient) -> None:
    check(client.post(TEXT, data={"prompt": "x"}), 400, "invalid_body", None)


def test_missing_fields_are_named(client: TestClient, model: str) -> None:
    check(client.post(CHAT, json={"messages": HELLO}), 400, "missing_parameter", "model")
    check(client.post(CHAT, json={"model": model}), 400, "missing_parameter", "messages")
    check(client.post(TEXT, json={"model": model}), 400, "missing_parameter", "prompt")


def test_over_long_prompt(client: TestClient, model: str, bundled_engine: Engine) -> None:
    context = bundled_engine.describe().context_length
    long = [{"role": "user", "content": "apple " * context}]
    error = check(
        client.post(CHAT, json={"model": model, "messages": long}), 400, "context_length_exceeded", "messages"
    )
    assert str(context) in error["message"]
    exact = {"model": model, "prompt": [5] * (context - 3), "max_tokens": 3}
    assert client.post(TEXT, json=exact | {"max_tokens": 4}).status_code == 400


def test_unknown_path_and_wrong_method(client: TestClient) -> None:
    check(client.get("/v1/nothing"), 404, "not_found", None)
    check(client.post(CHAT + "/", json={}), 404, "not_found", None)
    response = client.get(CHAT)
    check(response, 405, "method_not_allowed", None)
    assert response.headers["allow"] == "POST"
    check(client.delete("/v1/models"), 405, "method_not_allowed", None)


def test_models(client: TestClient, model: str) -> None:
    listed = client.get("/v1/models").json()
    assert [card["id"] for card in listed["data"]] == [model] and listed["object"] == "list"
    assert client.get(f"/v1/models/{model}").json() == listed["data"][0]
    check(client.get("/v1/models/some/other"), 404, "model_not_found", "model")


def test_body_over_the_limit(client: TestClient, model: str) -> None:
    limit = 2 * 2**20
    request = json.dumps({"model": model, "prompt": "a" * limit})
    headers = {"Content-Type": "application/json"}
    check(client.post(TEXT, content=request, headers=headers), 413, "body_too_large", None)
    pieces = (request[i : i + 65536].encode() for i in range(0, len(request), 65536))
    check(client.post(TEXT, content=pieces, headers=headers), 413, "body_too_large", None)


def test_request_id_is_the_clients_or_ours(client: TestClient, model: str) -> None:
    given = client.get("/v1/models", headers={"X-Request-Id": "job-7:a.b_c"})
    assert given.headers["x-request-id"] == "job-7:a.b_c"
    for unsafe in ("a b", "x" * 129, 'a"b', ""):
        minted = client.get("/v1/models", headers={"X-Request-Id": unsafe}).headers["x-request-id"]
        assert minted != unsafe and len(minted) == 32
    answer = client.post(
        TEXT, json={"model": model, "prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "job-8"}
    )
    assert answer.json()["id"] == "cmpl-job-8"
