"""Frames are whole: no character is split over two of them, whatever the tokens do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot_service.app import create_app
from specpilot_service.settings import Settings
from specpilot_service.streaming import event_frame
from tests.service.sse import parse_events
from tests.service.tiny_engine import TinyEngine

REQUEST: dict[str, Any] = {
    "model": "tiny-ngram",
    "prompt": "bytes each. The owl",
    "max_tokens": 90,
    "temperature": 0,
}


# The byte engine goes on through an owl of four bytes or an accent of two; a step is one byte, or up to five.
@pytest.mark.parametrize(("prompt", "character"), [("each. The owl", "🦉"), ("and the na", "ï")])
@pytest.mark.parametrize("drafter", ["none", "bigram"])
def test_multibyte_characters_arrive_whole(drafter: str, prompt: str, character: str) -> None:
    request = REQUEST | {"prompt": prompt, "speculation": {"drafter": drafter}}
    with TestClient(create_app(Settings(), TinyEngine())) as client:
        whole = client.post("/v1/completions", json=request).json()["choices"][0]["text"]
        events, is_done = parse_events(
            client.post("/v1/completions", json=request | {"stream": True}).content
        )
    assert is_done and character in whole
    texts = [event["choices"][0]["text"] for event in events]
    assert "".join(texts) == whole
    assert not any("\ufffd" in text for text in texts)


def test_logprobs_of_partial_characters_have_distinct_labels() -> None:
    with TestClient(create_app(Settings(), TinyEngine())) as client:
        choice = client.post("/v1/completions", json=REQUEST | {"logprobs": 5}).json()["choices"][0]
        chat = client.post(
            "/v1/chat/completions",
            json={
                "model": "tiny-ngram",
                "messages": [{"role": "user", "content": "each. The owl"}],
                "max_tokens": 90,
                "temperature": 0,
                "logprobs": True,
                "top_logprobs": 5,
            },
        ).json()["choices"][0]
    assert all(len(top) in (5, 6) for top in choice["logprobs"]["top_logprobs"])
    owl = choice["logprobs"]["tokens"].index("token_id:240")
    assert choice["logprobs"]["tokens"][owl : owl + 4] == [f"token_id:{byte}" for byte in "🦉".encode()]
    start = choice["text"].index("🦉")
    assert choice["logprobs"]["text_offset"][owl : owl + 5] == [start] * 4 + [start + 1]
    for entry in chat["logprobs"]["content"]:
        assert (entry["bytes"] is None) == entry["token"].startswith("token_id:")


def test_frame_is_one_line_for_every_way_to_split_lines() -> None:
    text = "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\u00e9b"
    frame = event_frame(json.dumps({"text": text}, ensure_ascii=False))
    assert len(frame.decode().splitlines()) == 2  # the frame and its blank line
    assert parse_events(frame) == ([{"text": text}], False)
