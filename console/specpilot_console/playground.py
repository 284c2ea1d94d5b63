"""One question to the engine that runs: as the profile answers it, and stock. What a person or a script can compare."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from specpilot_console.client import ApiError, ConsoleClient
from specpilot_service.schemas.models import ModelList

__all__ = ["Answer", "Question", "ask", "compare", "curl_code", "find_model", "python_code"]


@dataclass(frozen=True)
class Question:
    """``is_stock`` asks for plain decoding (drafter none) in place of what the profile does."""

    prompt: str
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    is_stock: bool = False

    def body(self, model: str) -> dict[str, Any]:
        """The request as OpenAI's chat endpoint takes it."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return body | ({"speculation": {"drafter": "none"}} if self.is_stock else {})


@dataclass(frozen=True)
class Answer:
    """One streamed answer, timed from here.

    Attributes
    ----------
    first_ms, total_ms
        From sending to the first text, and to the end.
    tokens_per_s
        Tokens over the whole time, prompt included; None where the engine did not count them.
    tau
        Accept length as the engine reports it; None where it reports none.
    """

    text: str
    finish_reason: str | None
    num_tokens: int | None
    first_ms: float
    total_ms: float
    tokens_per_s: float | None
    tau: float | None
    drafter: str | None
    request_id: str

    def content(self) -> dict[str, Any]:
        return asdict(self)


def find_model(client: ConsoleClient, key: str) -> str:
    """The first model that the gateway serves. Raises ApiError."""
    try:
        response = client.http.get(f"{client.gateway_url}/v1/models", headers=_headers(key))
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from None
    if not response.is_success:
        raise ApiError.of(response)
    models = ModelList.model_validate({"data": [_card(card) for card in response.json()["data"]]}).data
    if not models:
        raise ApiError(200, "no_model", "the gateway serves no model at the moment")
    return models[0].id


def _card(card: dict[str, Any]) -> dict[str, Any]:
    # Engines of others say less about a model than ours.
    return {"created": 0, "specpilot": {}, **card}


def ask(client: ConsoleClient, key: str, model: str, question: Question) -> Answer:
    """Raises ApiError, also for an answer that the gateway cut with an error frame."""
    begun_s = time.perf_counter()
    pieces: list[str] = []
    first_s: float | None = None
    finish_reason = None
    usage: dict[str, Any] = {}
    report: dict[str, Any] = {}
    url = f"{client.gateway_url}/v1/chat/completions"
    try:
        with client.http.stream("POST", url, json=question.body(model), headers=_headers(key)) as response:
            if not response.is_success:
                response.read()
                raise ApiError.of(response)
            request_id = response.headers.get("x-request-id", "")
            for frame in _frames(response):
                if "error" in frame:
                    raise ApiError(200, str(frame["error"].get("code")), str(frame["error"].get("message")))
                usage = frame.get("usage") or usage
                report = frame.get("specpilot") or report
                for choice in frame.get("choices", []):
                    # A completion's text too, for engines that answer chats in that form.
                    piece = (choice.get("delta") or {}).get("content") or choice.get("text") or ""
                    finish_reason = choice.get("finish_reason") or finish_reason
                    if piece:
                        first_s = first_s or time.perf_counter()
                        pieces.append(piece)
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from None
    end_s = time.perf_counter()
    first_s = first_s or end_s
    num_tokens = usage.get("completion_tokens")
    return Answer(
        text="".join(pieces),
        finish_reason=finish_reason,
        num_tokens=num_tokens,
        first_ms=(first_s - begun_s) * 1e3,
        total_ms=(end_s - begun_s) * 1e3,
        tokens_per_s=None if num_tokens is None else num_tokens / (end_s - begun_s),
        tau=report.get("tau"),
        drafter=report.get("drafter"),
        request_id=request_id,
    )


def compare(client: ConsoleClient, key: str, question: Question) -> tuple[Answer, Answer]:
    """(stock, profile): the same prompt and seed, one after the other so that neither takes the other's time."""
    model = find_model(client, key)
    stock = Question(**{**asdict(question), "is_stock": True})
    profile = Question(**{**asdict(question), "is_stock": False})
    return ask(client, key, model, stock), ask(client, key, model, profile)


def python_code(client: ConsoleClient, model: str, question: Question) -> str:
    """The same request with OpenAI's client; the key is not in it."""
    body = question.body(model)
    extra = body.pop("speculation", None)
    options = [f"    {name}={value!r}," for name, value in body.items()]
    if extra is not None:
        options.append(f"    extra_body={{'speculation': {extra!r}}},")
    lines = [
        "import os",
        "",
        "from openai import OpenAI",
        "",
        f'client = OpenAI(base_url="{client.gateway_url}/v1", api_key=os.environ.get("API_KEY", "none"))',
        "for part in client.chat.completions.create(",
        *options,
        "):",
        "    if part.choices:",
        '        print(part.choices[0].delta.content or "", end="", flush=True)',
    ]
    return "\n".join(lines)


def curl_code(client: ConsoleClient, model: str, question: Question) -> str:
    body = json.dumps(question.body(model), ensure_ascii=False).replace("'", "'\\''")
    return (
        f"curl -N {client.gateway_url}/v1/chat/completions \\\n  -H 'Content-Type: application/json' \\\n"
        f"  -H \"Authorization: Bearer $API_KEY\" \\\n  -d '{body}'"
    )


def _frames(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data and data != "[DONE]":
            yield json.loads(data)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _unreachable(client: ConsoleClient, error: Exception) -> ApiError:
    return ApiError(0, "unreachable", f"gateway {client.gateway_url}: {error or type(error).__name__}")
