"""Chat completions on the bundled model."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot_service.app import create_app
from specpilot_service.settings import Settings
from tests.service.sse import parse_events
from tests.service.tiny_engine import TinyEngine

PATH = "/v1/chat/completions"
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"


def body(model: str, **fields: Any) -> dict[str, Any]:
    base = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 24,
    }
    return base | fields


def post(client: TestClient, **request: Any) -> dict[str, Any]:
    response = client.post(PATH, json=request)
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: TestClient, **request: Any) -> list[dict[str, Any]]:
    response = client.post(PATH, json=request | {"stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events, is_done = parse_events(response.content)
    assert is_done
    return events


def text_of(events: list[dict[str, Any]], index: int = 0) -> str:
    choices = [c for event in events for c in event["choices"] if c["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def test_answer_is_what_the_engine_decodes(client: TestClient, model: str, bundled_engine: Engine) -> None:
    answer = post(client, **body(model))
    ids = bundled_engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    chunks = list(bundled_engine.generate(GenerateRequest(ids, SamplingParams(max_new_tokens=24))))
    choice = answer["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": "".join(c.text for c in chunks),
        "refusal": None,
    }
    assert choice["finish_reason"] == chunks[-1].finish_reason
    num_tokens = sum(len(chunk.token_ids) for chunk in chunks)
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(ids), num_tokens)
    assert usage["total_tokens"] == len(ids) + num_tokens
    assert answer["object"] == "chat.completion" and answer["model"] == model


def test_stream_carries_the_same_answer(client: TestClient, model: str) -> None:
    whole, events = post(client, **body(model)), stream(client, **body(model))
    assert text_of(events) == whole["choices"][0]["message"]["content"]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in event["choices"][0]["delta"] for event in events[1:])
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons[-1] == whole["choices"][0]["finish_reason"] and set(reasons[:-1]) == {None}
    assert all("usage" not in event for event in events)
    assert [("specpilot" in event) for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["specpilot"] == whole["specpilot"]


def test_stream_usage_only_on_request_and_last(client: TestClient, model: str) -> None:
    whole = post(client, **body(model))
    events = stream(
        client, **body(model, stream_options={"include_usage": True, "include_obfuscation": False})
    )
    assert all(event["usage"] is None for event in events[:-1])
    assert events[-1]["choices"] == [] and events[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize("drafter", ["dflash2", "none"])
def test_drafter_changes_the_steps_and_not_the_answer(client: TestClient, model: str, drafter: str) -> None:
    default = post(client, **body(model))
    answer = post(client, **body(model, speculation={"drafter": drafter}))
    assert answer["choices"] == default["choices"]
    report, details = answer["specpilot"], answer["usage"]["completion_tokens_details"]
    assert report["drafter"] == drafter
    if drafter == "none":
        assert report["tau"] == 1.0
        assert details == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    else:
        accepted = details["accepted_prediction_tokens"]
        # Usage counts what entered the answer: the drafts of the last step may be cut by its end.
        confirmed = round((report["tau"] - 1) * report["num_steps"])
        assert 0 < accepted <= confirmed <= accepted + 7
        assert (
            report["num_steps"]
            < post(client, **body(model, speculation={"drafter": "none"}))["specpilot"]["num_steps"]
        )


def test_n_choices_are_seeded_apart_and_reproducible(client: TestClient, model: str) -> None:
    request = body(model, n=3, temperature=2.0, seed=7, max_tokens=16)
    first, again = post(client, **request), post(client, **request)
    texts = [choice["message"]["content"] for choice in first["choices"]]
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert len(set(texts)) > 1
    assert again["choices"] == first["choices"]
    alone = post(client, **(request | {"n": 1}))
    assert alone["choices"][0] == first["choices"][0]
    assert first["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]
    events = stream(client, **request)
    assert [text_of(events, index) for index in range(3)] == texts


@pytest.mark.parametrize("as_list", [False, True])
def test_stop_string_ends_the_answer_before_it(client: TestClient, model: str, as_list: bool) -> None:
    text = post(client, **body(model))["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    answer = post(client, **body(model, stop=[stop, "\x00never"] if as_list else stop))
    choice = answer["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"
    assert text_of(stream(client, **body(model, stop=stop))) == choice["message"]["content"]


def test_logprobs_belong_to_the_answer(client: TestClient, model: str, bundled_engine: Engine) -> None:
    answer = post(client, **body(model, logprobs=True, top_logprobs=3, max_tokens=8))
    entries = answer["choices"][0]["logprobs"]["content"]
    assert len(entries) == answer["usage"]["completion_tokens"]
    for entry in entries:
        tops = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True)
        # Greedy: the chosen token is the most likely one.
        assert entry["logprob"] == pytest.approx(tops[0], abs=1e-5)
        assert entry["token"] == entry["top_logprobs"][0]["token"]
        assert entry["token"].startswith("token_id:") or bytes(entry["bytes"]).decode() == entry["token"]
    assert math.fsum(math.exp(top["logprob"]) for top in entries[0]["top_logprobs"]) <= 1.0 + 1e-6
    streamed = [
        entry
        for event in stream(client, **body(model, logprobs=True, top_logprobs=3, max_tokens=8))
        for entry in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == entries
    plain = post(client, **body(model, logprobs=True, max_tokens=8))["choices"][0]["logprobs"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in plain)


def test_without_a_limit_the_context_is_the_limit() -> None:
    engine = TinyEngine()
    request = {"model": "tiny-ngram", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    with TestClient(create_app(Settings(), engine)) as client:
        answer = post(client, **request, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == engine.describe().context_length


def test_ignore_eos_decodes_to_the_limit(client: TestClient, model: str) -> None:
    answer = post(client, **body(model, ignore_eos=True, max_tokens=64))
    assert answer["usage"]["completion_tokens"] == 64
    assert answer["choices"][0]["finish_reason"] == "length"


def test_max_completion_tokens_is_the_newer_name(client: TestClient, model: str) -> None:
    request = body(model)
    del request["max_tokens"]
    assert post(client, **request, max_completion_tokens=5)["usage"]["completion_tokens"] == 5


def test_neutral_fields_of_clients_change_nothing(client: TestClient, model: str) -> None:
    neutral = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "response_format": {"type": "text"},
        "user": "someone",
        "metadata": {"team": "blue"},
        "store": False,
        "parallel_tool_calls": True,
        "tools": None,
        "tool_choice": "auto",
        "service_tier": "auto",
        "reasoning_effort": None,
        "prompt_cache_retention": "in_memory",
    }
    assert post(client, **body(model, **neutral))["choices"] == post(client, **body(model))["choices"]


def test_messages_in_every_accepted_form(client: TestClient, model: str) -> None:
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    parts = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": QUESTION[:10]}, {"type": "text", "text": QUESTION[10:]}],
        },
    ]
    first = post(client, **body(model, messages=plain))
    assert post(client, **body(model, messages=parts))["choices"] == first["choices"]
    returned = first["choices"][0]["message"] | {"tool_calls": None, "audio": None, "annotations": []}
    post(client, **body(model, messages=[*plain, returned, {"role": "user", "content": "Why?"}]))
