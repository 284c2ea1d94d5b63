"""Answers to audit: many prompts through an engine at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.forcing.answer import Answer

__all__ = ["Prompt", "collect_answers", "decode_ids"]

Prompt = tuple[str, Sequence[int]]
"""Request id and prompt ids."""


def decode_ids(engine: Engine, request: GenerateRequest) -> tuple[list[int], str | None]:
    """Token ids of an answer, and why it ended."""
    ids: list[int] = []
    reason: str | None = None
    for chunk in engine.generate(request):
        ids += chunk.token_ids
        reason = chunk.finish_reason
    return ids, reason


def collect_answers(
    engine: Engine,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    *,
    drafter: str | None = None,
    mechanisms: Mechanisms = STOCK,
    concurrency: int = 8,
    on_answer: Callable[[int], None] = lambda num_tokens: None,
) -> list[Answer]:
    """Greedy answers in the prompts' order; ``on_answer`` is told the tokens of each."""
    params = SamplingParams(max_new_tokens=max_new_tokens)

    def one(prompt: Prompt) -> Answer:
        name, ids = prompt
        request = GenerateRequest(ids, params, drafter, name, mechanisms)
        output, reason = decode_ids(engine, request)
        return Answer(name, tuple(ids), tuple(output), reason, max_new_tokens)

    answers = []
    with ThreadPoolExecutor(concurrency) as pool:
        for answer in pool.map(one, prompts):
            on_answer(len(answer.output_ids))
            answers.append(answer)
    return answers
