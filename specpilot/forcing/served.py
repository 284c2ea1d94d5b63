"""Answers of a server that is in service: an OpenAI-style endpoint that tells token ids, or SGLang's ``/generate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.check import check_ids
from specpilot.forcing.collect import Prompt
from specpilot.forcing.departures import common_length
from specpilot.forcing.scorers.http import JsonServer

__all__ = ["served_answers"]


def served_answers(
    server: JsonServer,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    *,
    model: str | None,
    extra: dict[str, Any] | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
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
    decode
        Text of token ids, where a tokenizer is at hand: users read the text, so it must be that of the ids. An answer
        without any text is refused only by an OpenAI-style endpoint; SGLang has none without a tokenizer.

    Raises
    ------
    ForcingError
        The server refuses a request, breaks off, answers anything but the API's form, or does not tell token ids.
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
        reply = server.post("/v1/completions", body | (extra or {}))
        choices = reply.get("choices") if isinstance(reply, dict) else None
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            raise ForcingError(f"{server.url}, request {name!r}: the answer has not one choice")
        choice = choices[0]
        output, reason = choice.get("token_ids"), choice.get("finish_reason")
        if not isinstance(output, list):
            raise ForcingError(
                f"{server.url}: the answer has no token_ids; an audit needs a server that knows return_token_ids"
            )
        if choice.get("prompt_token_ids") not in (None, list(ids)):
            raise ForcingError(f"{server.url}, request {name!r}: answered another prompt than it was given")
        check_ids(output, f"{server.url}, request {name!r}, token_ids")
        if decode is not None:
            _check_text(choice.get("text"), decode(output), f"{server.url}, request {name!r}")
        return Answer(name, tuple(ids), tuple(output), _text_or_none(reason), max_new_tokens)

    def sglang(prompt: Prompt) -> Answer:
        name, ids = prompt
        params = {"temperature": 0.0, "max_new_tokens": max_new_tokens}
        reply = server.post("/generate", {"input_ids": list(ids), "sampling_params": params} | (extra or {}))
        if not isinstance(reply, dict) or not isinstance(reply.get("meta_info"), dict):
            raise ForcingError(f"{server.url}, request {name!r}: the answer is no object with meta_info")
        output, reason = reply.get("output_ids"), reply["meta_info"].get("finish_reason")
        if not isinstance(output, list):
            raise ForcingError(
                f"{server.url}: the answer has no output_ids; start it with --skip-tokenizer-init"
            )
        check_ids(output, f"{server.url}, request {name!r}, output_ids")
        if decode is not None and reply.get("text") is not None:
            _check_text(reply["text"], decode(output), f"{server.url}, request {name!r}")
        kind = reason.get("type") if isinstance(reason, dict) else reason
        return Answer(name, tuple(ids), tuple(output), _text_or_none(kind), max_new_tokens)

    answers = []
    with ThreadPoolExecutor(concurrency) as pool:
        for answer in pool.map(sglang if model is None else openai, prompts):
            on_answer(len(answer.output_ids))
            answers.append(answer)
    return answers


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _check_text(text: Any, decoded: str, name: str) -> None:
    """ForcingError for another text; a character cut at the end may be shown as U+FFFD or held back."""
    if not isinstance(text, str):
        raise ForcingError(f"{name}: the answer has no text")
    found, expected = text.rstrip("\ufffd"), decoded.rstrip("\ufffd")
    if found != expected:
        at = common_length([*map(ord, found)], [*map(ord, expected)])
        raise ForcingError(
            f"{name}: the text differs from its token ids at character {at}: got {found[at : at + 20]!r}, expected "
            f"{expected[at : at + 20]!r}"
        )
