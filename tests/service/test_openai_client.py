"""The official client against the real server on the bundled model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

from specpilot.engines.base import Engine
from tests.service.live_server import LiveServer, run_server, wait_until

MESSAGES: Any = [
    {"role": "user", "content": "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"}
]


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with run_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module")
def api(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def test_models(api: openai.OpenAI, model: str) -> None:
    assert [card.id for card in api.models.list()] == [model]
    assert api.models.retrieve(model).id == model


def test_chat(api: openai.OpenAI, model: str) -> None:
    answer = api.chat.completions.create(
        model=model, messages=MESSAGES, temperature=0, max_tokens=24, logprobs=True, top_logprobs=2
    )
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert answer.usage is not None and answer.usage.completion_tokens == len(choice.logprobs.content)
    details = answer.usage.completion_tokens_details
    assert details is not None and details.accepted_prediction_tokens is not None
    # The extension survives as an extra field.
    assert answer.model_extra is not None and answer.model_extra["specpilot"]["drafter"] == "dflash2"


def test_chat_stream(api: openai.OpenAI, model: str) -> None:
    request: Any = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": 24}
    whole = api.chat.completions.create(**request)
    chunks = list(api.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


class Purchase(BaseModel):
    name: Literal["Tom", "Ann"]
    apples: int = Field(ge=0, le=99)


def test_sampling_options(api: openai.OpenAI, model: str) -> None:
    answer = api.chat.completions.create(
        model=model,
        messages=MESSAGES,
        n=2,
        seed=5,
        temperature=1.2,
        top_p=0.95,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        logit_bias={"40": -100},
        logprobs=True,
        top_logprobs=3,
        max_completion_tokens=12,
        extra_body={"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1},
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content
        assert all(entry.bytes is not None for entry in choice.logprobs.content)


def test_parsed_answer(api: openai.OpenAI, model: str) -> None:
    """The client turns the class into a strict JSON Schema and the answer back into the class."""
    answer = api.chat.completions.parse(
        model=model, messages=MESSAGES, temperature=0, max_tokens=200, response_format=Purchase
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Purchase)


def test_json_object_stream(api: openai.OpenAI, model: str) -> None:
    chunks = api.chat.completions.create(
        model=model,
        messages=MESSAGES,
        temperature=0,
        max_tokens=24,
        stream=True,
        response_format={"type": "json_object"},
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.startswith("{")


def test_conversation_is_sent_back(api: openai.OpenAI, model: str) -> None:
    answer = api.chat.completions.create(model=model, messages=MESSAGES, temperature=0, max_tokens=8)
    history = [*MESSAGES, answer.choices[0].message, {"role": "user", "content": "And then?"}]
    assert api.chat.completions.create(model=model, messages=history, max_tokens=4).choices


def test_completions_with_echo_and_logprobs(api: openai.OpenAI, model: str, bundled_engine: Engine) -> None:
    ids = bundled_engine.tokenize("Tom has 3 apples.")
    answer = api.completions.create(model=model, prompt=ids, echo=True, logprobs=1, max_tokens=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    assert len(logprobs.token_logprobs) == len(ids) and logprobs.token_logprobs[0] is None


def test_completions_stream_with_extension(api: openai.OpenAI, model: str) -> None:
    request: Any = {"model": model, "prompt": "def add(a, b):", "temperature": 0, "max_tokens": 16}
    whole = api.completions.create(**request)
    chunks = api.completions.create(**request, stream=True, extra_body={"speculation": {"drafter": "none"}})
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_errors_are_the_clients_own(api: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        api.chat.completions.create(model="gpt-none", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        api.chat.completions.create(model=model, messages=MESSAGES, n=0)
    assert wrong.value.param == "n"
    with pytest.raises(openai.BadRequestError) as refused:
        api.chat.completions.create(model=model, messages=MESSAGES, store=True)
    assert refused.value.code == "unsupported_parameter" and refused.value.request_id
    schema: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "strnig"}}}
    with pytest.raises(openai.BadRequestError, match="strnig") as unknown:
        api.chat.completions.create(model=model, messages=MESSAGES, response_format=schema)
    assert (unknown.value.code, unknown.value.param) == ("invalid_json_schema", "response_format")


def test_closing_a_stream_cancels_it(api: openai.OpenAI, server: LiveServer, model: str) -> None:
    request: Any = {"model": model, "prompt": "Tom", "max_tokens": 6000, "extra_body": {"ignore_eos": True}}
    with api.completions.create(**request, stream=True) as chunks:
        next(iter(chunks))
    wait_until(server.is_idle, "the generation is cancelled")
    assert api.completions.create(model=model, prompt="Tom", max_tokens=2).usage
