"""JSON over HTTP to a server that answers, scores or both; every failure is a ForcingError that names it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.scores import TokenScores

__all__ = ["JsonServer", "ServedScorer", "score_many"]

_LOCAL = ("127.0.0.1", "localhost", "::1")


class JsonServer:
    """One server.

    Parameters
    ----------
    url
        Without the paths of its API: ``http://127.0.0.1:8000``.
    key
        Sent as bearer token; kept out of every message.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 300.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ForcingError(f"url: got {url!r}, expected http(s)://host[:port]")
        self.url, self._timeout_s = url.rstrip("/"), timeout_s
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # A proxy that the environment names does not know this machine's own ports.
        handlers = [urllib.request.ProxyHandler({})] if parts.hostname in _LOCAL else []
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str) -> Any:
        return self._ask(path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, data: bytes | None) -> Any:
        request = urllib.request.Request(self.url + path, data, self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            text = error.read(400).decode(errors="replace")
            raise ForcingError(f"{self.url}{path}: the server refused it with {error.code}: {text}") from None
        except (OSError, ValueError) as error:
            raise ForcingError(f"{self.url}{path}: {type(error).__name__}: {error}") from None


class ServedScorer(ABC):
    """What scorers over HTTP share: one forced pass is all they ask of their server."""

    def __init__(self, server: JsonServer, concurrency: int) -> None:
        self._server, self._concurrency = server, concurrency

    @abstractmethod
    def _force(self, ids: Sequence[int], start: int) -> TokenScores:
        """Scores of ``ids[start:]`` after ``ids[:start]``, from one prefill."""

    def score(
        self, answers: Sequence[Answer], on_scored: Callable[[int], None] = lambda num_tokens: None
    ) -> list[TokenScores]:
        def one(answer: Answer) -> TokenScores:
            return self._force([*answer.prompt_ids, *answer.output_ids], len(answer.prompt_ids))

        return score_many(one, answers, self._concurrency, on_scored)

    def rescore(self, ids: Sequence[int], index: int) -> tuple[int, float]:
        scores = self._force(ids, index)
        return int(scores.argmax_ids[0]), float(scores.argmax_logprobs[0] - scores.logprobs[0])


def score_many(
    score_one: Callable[[Answer], TokenScores],
    answers: Sequence[Answer],
    concurrency: int,
    on_scored: Callable[[int], None],
) -> list[TokenScores]:
    """Scores in the answers' order, ``concurrency`` at a time."""
    scores = []
    with ThreadPoolExecutor(concurrency) as pool:
        for answer, result in zip(answers, pool.map(score_one, answers), strict=True):
            on_scored(len(answer.output_ids))
            scores.append(result)
    return scores
