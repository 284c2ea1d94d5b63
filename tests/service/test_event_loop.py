"""No engine call blocks the event loop: while one hangs, the server still answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, ScoreResult
from tests.service.live_server import run_server, wait_until
from tests.service.tiny_engine import TinyEngine


class HangingEngine(TinyEngine):
    """Hangs in one method until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging_in: str | None = None
        self.has_entered = threading.Event()
        self.release = threading.Event()

    def _pass(self, method: str) -> None:
        if method == self.hanging_in:
            self.has_entered.set()
            assert self.release.wait(60)

    def tokenize(self, text: str) -> list[int]:
        self._pass("tokenize")
        return super().tokenize(text)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        self._pass("detokenize")
        return super().detokenize(token_ids)

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        self._pass("apply_chat_template")
        return super().apply_chat_template(messages)

    def token_bytes(self, token_id: int) -> bytes:
        self._pass("token_bytes")
        return super().token_bytes(token_id)

    def score(
        self,
        token_ids: Sequence[int],
        start: int,
        cancel: CancelToken | None = None,
        *,
        num_top: int = 0,
    ) -> ScoreResult:
        self._pass("score")
        return super().score(token_ids, start, cancel, num_top=num_top)

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        self._pass("generate")
        return super().generate(request, cancel)

    def _draft(self, ids: list[int]) -> list[int]:
        self._pass("step")
        return super()._draft(ids)


TEXT: dict[str, Any] = {"prompt": "Tom", "echo": True, "logprobs": 1, "max_tokens": 4}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Tom"}], "logprobs": True, "max_tokens": 4}


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body", "method"),
    [
        *(
            ("/v1/completions", TEXT, name)
            for name in ("tokenize", "score", "detokenize", "generate", "step")
        ),
        *(
            ("/v1/chat/completions", CHAT, name)
            for name in ("apply_chat_template", "detokenize", "generate", "step")
        ),
    ],
)
def test_server_answers_while_the_engine_hangs(
    path: str, body: dict[str, Any], method: str, is_stream: bool
) -> None:
    engine = HangingEngine()
    with run_server(engine) as server:
        engine.hanging_in = method
        answers: list[httpx.Response] = []
        request = body | {"model": "tiny-ngram", "stream": is_stream}
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(server.url + path, json=request, timeout=60))
        )
        thread.start()
        wait_until(engine.has_entered.is_set, "the engine hangs")
        assert server.client.get("/livez").status_code == 200
        assert server.client.get("/v1/models").status_code == 200
        assert server.client.get("/readyz").json()["status"] == "ok"
        assert "specpilot_requests_running" in server.client.get("/metrics").text
        engine.release.set()
        thread.join(60)
        assert answers[0].status_code == 200
