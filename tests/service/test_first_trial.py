"""Requests that once went wrong: text without UTF-8, answers cut inside a step, tiny temperatures, idle scores."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import CancelToken, Engine
from specpilot.errors import Cancelled


@pytest.mark.parametrize("content", ["\ud800", [{"type": "text", "text": "a\udfff"}]])
def test_half_a_surrogate_pair_is_refused_by_name(client: TestClient, model: str, content: object) -> None:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 2})
    answer = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("messages")


@pytest.mark.parametrize("limit", [{"max_tokens": 3}, {"stop": ["e", "he", "1"]}])
def test_accepted_drafts_never_exceed_the_answer(
    client: TestClient, model: str, limit: dict[str, object]
) -> None:
    question = [{"role": "user", "content": "A box holds 24 eggs. Ben buys 3 boxes. How many eggs?"}]
    answer = client.post("/v1/chat/completions", json={"model": model, "messages": question} | limit).json()
    details = answer["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] <= answer["usage"]["completion_tokens"]
    assert details["rejected_prediction_tokens"] >= 0


def test_a_tiny_temperature_is_greedy(client: TestClient, model: str) -> None:
    def ask(temperature: float) -> str:
        body = {"model": model, "prompt": "Step 1: 4 + 4", "max_tokens": 12, "temperature": temperature}
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])

    assert ask(5e-324) == ask(0.0)


def test_a_score_nobody_waits_for_ends(bundled_engine: Engine) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        bundled_engine.score([5] * 8000, 1, cancel)
    assert bundled_engine.health().num_running == 0
