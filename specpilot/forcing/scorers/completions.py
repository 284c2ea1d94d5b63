"""Any OpenAI-style ``/v1/completions`` that echoes a prompt with log-probabilities, our own endpoint among them.

Token ids go in as they are, and the server must take ``return_tokens_as_token_ids`` (vLLM, ours), which names tokens
``token_id:N``: where tokens are named by their texts, nothing shows that it scored the tokens it was given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from specpilot.errors import ForcingError
from specpilot.forcing.scorers.base import ScorerDescription
from specpilot.forcing.scorers.http import JsonServer, ServedScorer
from specpilot.forcing.scores import TokenScores

__all__ = ["CompletionsScorer"]

_LABEL = "token_id:"


class CompletionsScorer(ServedScorer):
    """Scores by ``echo`` with ``max_tokens`` 0.

    Parameters
    ----------
    model
        Name in requests; None: the first that ``/v1/models`` lists.
    about
        What is known of the server besides: its vocabulary, end-of-text ids, tokenizer and head. Without end-of-text
        ids, answers that ended with ``stop`` cannot be judged.
    extra
        Fields that go into every request, such as what turns the server's speculation off.
    """

    def __init__(
        self,
        server: JsonServer,
        model: str | None = None,
        *,
        about: ScorerDescription | None = None,
        extra: dict[str, Any] | None = None,
        concurrency: int = 4,
    ) -> None:
        super().__init__(server, concurrency)
        self._extra = extra or {}
        self.model = model or _first_model(server)
        self._about = about or ScorerDescription(server.url, self.model, "unknown")

    def describe(self) -> ScorerDescription:
        return self._about

    def continue_greedily(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        body = {"prompt": list(ids), "max_tokens": num_tokens, "logprobs": 1}
        labels = self._ask(body)["logprobs"].get("tokens")
        if not isinstance(labels, list):
            raise ForcingError(f"{self._server.url}: the answer names no tokens")
        return [self._id_of(label) for label in labels]

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        fixed = {"model": self.model, "temperature": 0, "return_tokens_as_token_ids": True}
        reply = self._server.post("/v1/completions", fixed | self._extra | body)
        try:
            choice: dict[str, Any] = reply["choices"][0]
        except (KeyError, IndexError, TypeError):
            raise ForcingError(f"{self._server.url}: the answer has no choices") from None
        if not isinstance(choice, dict) or not isinstance(choice.get("logprobs"), dict):
            raise ForcingError(
                f"{self._server.url}: the answer has no log-probabilities; the server drops them"
            )
        return choice

    def _force(self, ids: Sequence[int], start: int) -> TokenScores:
        choice = self._ask({"prompt": list(ids), "max_tokens": 0, "echo": True, "logprobs": 1})
        logprobs = choice["logprobs"]
        try:
            labels, values = logprobs["tokens"], logprobs["token_logprobs"]
            tops = logprobs["top_logprobs"]
            if not len(labels) == len(values) == len(tops) == len(ids):
                raise ForcingError(
                    f"{self._server.url}: got scores of {len(values)} tokens, expected {len(ids)}; it has another "
                    "tokenizer, or drops log-probabilities"
                )
            self._check_labels(labels, ids)
            best = [max(top.items(), key=lambda pair: pair[1]) for top in tops[start:]]
            return TokenScores(
                np.array([_number(value) for value in values[start:]]),
                np.array([self._id_of(label) for label, _ in best], np.int64),
                np.array([_number(value) for _, value in best]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ForcingError(f"{self._server.url}: log-probabilities are missing: {error!r}") from None

    def _check_labels(self, labels: Sequence[str], ids: Sequence[int]) -> None:
        for label, token_id in zip(labels, ids, strict=True):
            if self._id_of(label) != token_id:
                raise ForcingError(
                    f"{self._server.url}: scored token {label}, expected {token_id}; it has another tokenizer"
                )

    def _id_of(self, label: Any) -> int:
        number = label[len(_LABEL) :] if isinstance(label, str) and label.startswith(_LABEL) else ""
        if not (number.isascii() and number.isdigit()):
            raise ForcingError(
                f"{self._server.url}: names a token {label!r}, expected {_LABEL}N; the server must know "
                "return_tokens_as_token_ids"
            )
        return int(number)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _first_model(server: JsonServer) -> str:
    try:
        return str(server.get("/v1/models")["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise ForcingError(f"{server.url}/v1/models: lists no model") from None
