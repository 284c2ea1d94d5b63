"""A gateway learns a stream's usage from a comment that clients do not get unasked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specpilot_service.streaming import USAGE_COMMENT, USAGE_HEADER
from tests.service.live_server import run_server
from tests.service.tiny_engine import TinyEngine

TEXT: dict[str, Any] = {"model": "tiny-ngram", "prompt": "Tom", "max_tokens": 7, "n": 2, "ignore_eos": True}


@pytest.mark.parametrize(
    ("value", "options", "is_told"),
    [
        ("comment", None, True),
        ("comment", {"include_usage": False}, True),
        ("comment", {"include_usage": True}, False),
        ("yes", None, False),
        (None, None, False),
    ],
)
def test_the_comment_is_for_who_asks(value: str | None, options: Any, is_told: bool) -> None:
    with run_server(TinyEngine()) as server:
        whole = server.client.post("/v1/completions", json=TEXT).json()["usage"]
        headers = {} if value is None else {USAGE_HEADER: value}
        body = TEXT | {"stream": True} | ({} if options is None else {"stream_options": options})
        events = server.client.post("/v1/completions", json=body, headers=headers).content.split(b"\n\n")[:-1]
        assert events[-1] == b"data: [DONE]"
        comments = [event for event in events if event.startswith(USAGE_COMMENT)]
        assert comments == ([events[-2]] if is_told else [])
        if is_told:
            told = json.loads(comments[0].removeprefix(USAGE_COMMENT))
            assert {name: told[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
                name: whole[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
            }
