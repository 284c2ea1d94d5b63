"""An OpenAI endpoint as a system: streamed completions of token ids, read with the standard library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from specpilot.controller.slots.base import Piece
from specpilot.errors import ConfigError, EngineError

__all__ = ["HttpEndpoint", "list_models"]

_TIMEOUT_S = 600.0
_MAX_EVENT_BYTES = 1 << 20


class HttpEndpoint:
    """``POST /v1/completions`` with token ids in and, by ``return_token_ids`` (vLLM's and ours), token ids out.

    Parameters
    ----------
    body
        Fields added to every request.

    Raises
    ------
    EngineError
        While answering: the server refuses, breaks off, or gives no token ids. Counting its words instead would
        believe the system about the very thing that is measured.
    """

    def __init__(
        self, url: str, model: str, body: Mapping[str, Any] | None = None, key: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.query:
            raise ConfigError(f"url: got {url!r}, expected one such as http://127.0.0.1:8000")
        self._host, self._port, self._path = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self._model, self._body, self._key = model, dict(body or {}), key

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Piece]:
        fields = self._body | {
            "model": self._model,
            "prompt": list(prompt_ids),
            "max_tokens": max_new_tokens,
            "temperature": 0.0,
            "stream": True,
            "return_token_ids": True,
        }
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._key}"} if self._key else {}
        )
        try:
            connection.request("POST", f"{self._path}/v1/completions", json.dumps(fields), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise EngineError(
                    f"server: got status {response.status}: {response.read(500).decode('utf-8', 'replace')}"
                )
            yield from _pieces(response)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as error:
            raise EngineError(f"server: the answer cannot be read: {error!r}") from error
        finally:
            connection.close()


def list_models(url: str) -> list[str]:
    """Names under ``/v1/models``; EngineError while there is no answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=10.0)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/v1/models")
        response = connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            raise EngineError(f"server: got status {response.status}")
        return [str(one["id"]) for one in body["data"]]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"server: no answer: {error!r}") from error
    finally:
        connection.close()


def _pieces(response: http.client.HTTPResponse) -> Iterator[Piece]:
    """Events of a stream up to ``[DONE]``. The finish reason comes last, whenever the server gave it."""
    reason: str | None = None
    num_steps: int | None = None
    while line := response.readline(_MAX_EVENT_BYTES):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            yield Piece((), reason, num_steps)
            return
        event = json.loads(data)
        if "error" in event:
            raise EngineError(f"server: {event['error']}")
        if report := event.get("specpilot"):
            num_steps = report["num_steps"]
        for choice in event["choices"]:
            ids = choice.get("token_ids")
            if ids is None and choice.get("text"):
                raise EngineError("server: got no token_ids; it must know return_token_ids")
            reason = choice.get("finish_reason") or reason
            if ids:
                yield Piece(tuple(map(int, ids)))
    raise EngineError("server: the stream ended before [DONE]")
