"""``return_token_ids``: what an audit reads, whole and streamed, and nothing of the answer changes for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import Engine
from specpilot.forcing.scorers.completions import CompletionsScorer
from specpilot.forcing.served import served_answers

PROMPT = "A bus has 40 seats."


def body(model: str, **options: Any) -> dict[str, Any]:
    return {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0} | options


class InProcess:
    """The part of ``JsonServer`` that audits use, on the app itself."""

    url = "in process"

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def get(self, path: str) -> Any:
        return self._client.get(path).json()

    def post(self, path: str, body: Any) -> Any:
        return self._client.post(path, json=body).json()


def test_ids_come_with_the_answer_and_change_nothing(
    client: TestClient, bundled_engine: Engine, model: str
) -> None:
    plain = client.post("/v1/completions", json=body(model)).json()["choices"][0]
    assert "token_ids" not in plain and "prompt_token_ids" not in plain
    choice = client.post("/v1/completions", json=body(model, return_token_ids=True)).json()["choices"][0]
    assert choice["prompt_token_ids"] == bundled_engine.tokenize(PROMPT)
    assert choice["text"] == plain["text"] == bundled_engine.detokenize(choice["token_ids"])
    assert len(choice["token_ids"]) == 12


@pytest.mark.parametrize("echo", [False, True])
def test_streamed_ids_are_the_whole_ones(client: TestClient, model: str, echo: bool) -> None:
    request = body(model, return_token_ids=True, echo=echo)
    whole = client.post("/v1/completions", json=request).json()["choices"][0]
    lines = client.post("/v1/completions", json=request | {"stream": True}).text.splitlines()
    frames = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    parts = [choice for frame in frames for choice in frame["choices"]]
    assert [i for part in parts for i in part.get("token_ids") or ()] == whole["token_ids"]
    assert [part["prompt_token_ids"] for part in parts if part.get("prompt_token_ids")] == [
        whole["prompt_token_ids"]
    ]


def test_an_audit_reads_and_scores_this_endpoint(
    client: TestClient, bundled_engine: Engine, model: str
) -> None:
    server: Any = InProcess(client)
    prompts = [("a", bundled_engine.tokenize(PROMPT))]
    (answer,) = served_answers(server, prompts, 12, model=model, concurrency=1)
    scorer = CompletionsScorer(server, extra={"speculation": {"drafter": "none"}}, concurrency=1)
    (score,) = scorer.score([answer])
    expected = bundled_engine.score([*answer.prompt_ids, *answer.output_ids], len(answer.prompt_ids))
    assert score.logprobs.tolist() == pytest.approx(list(expected.logprobs))
    assert score.argmax_ids.tolist() == list(expected.argmax_ids) == list(answer.output_ids)
    assert scorer.continue_greedily(answer.prompt_ids, 3) == list(answer.output_ids[:3])
