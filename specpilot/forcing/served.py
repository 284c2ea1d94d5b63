"""Answers of a server that is in service: an OpenAI-style endpoint that tells token ids, or SGLang's ``/generate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.collect import Prompt
from specpilot.forcing.scorers.http import JsonServer

__all__ = ["served_answers"]


def served_answers(
    server: JsonServer,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    *,
    model: str | None,
    extra: dict[str, Any] | None = None,
    concurrency: int = 4,
    on_answer: Callable[[int], None] = lambda num_tokens: None,
) -> list[Answer]:
    """Greedy answers in the prompts' order.

    Parameters
    ----------
    model
        Name of an OpenAI-style endpoint's model, which must know ``return_token_ids``; None: the server is SGLang.
    extra
        More fields of every request.

    Raises
    ------
    ForcingError
        The server refuses a request, breaks off, or does not tell token ids.
    """

    def openai(prompt: Prompt) -> Answer:
        name, ids = prompt
        body = {
            "model": model,
            "prompt": list(ids),
            "max_tokens": max_new_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        choice = server.post("/v1/completions", body | (extra or {}))["choices"][0]
        output, reason = choice.get("token_ids"), choice.get("finish_reason")
        if not isinstance(output, list):
            raise ForcingError(
                f"{server.url}: the answer has no token_ids; an audit needs a server that knows return_token_ids"
            )
        return Answer(name, tuple(ids), tuple(output), reason, max_new_tokens)

    def sglang(prompt: Prompt) -> Answer:
        name, ids = prompt
        params = {"temperature": 0.0, "max_new_tokens": max_new_tokens}
        reply = server.post("/generate", {"input_ids": list(ids), "sampling_params": params} | (extra or {}))
        output, reason = reply.get("output_ids"), (reply.get("meta_info") or {}).get("finish_reason")
        if not isinstance(output, list):
            raise ForcingError(
                f"{server.url}: the answer has no output_ids; start it with --skip-tokenizer-init"
            )
        kind = reason.get("type") if isinstance(reason, dict) else reason
        return Answer(name, tuple(ids), tuple(output), kind, max_new_tokens)

    answers = []
    with ThreadPoolExecutor(concurrency) as pool:
        for answer in pool.map(sglang if model is None else openai, prompts):
            on_answer(len(answer.output_ids))
            answers.append(answer)
    return answers
