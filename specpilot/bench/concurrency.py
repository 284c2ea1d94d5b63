"""Decoding rate of several requests at once beside that of one at a time, in one process, taking turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specpilot.bench.answer import Answer, decode_answer
from specpilot.bench.pairs import BenchOptions
from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.errors import EngineError, RequestError
from specpilot.requests.reading import BenchRequest

__all__ = ["ConcurrencySummary", "run_concurrency"]

_WARM_UP_TOKENS = 16
_LEAST_TOKENS = 16


@dataclass(frozen=True)
class ConcurrencySummary:
    """What a run found, for plain decoding ("plain") and the drafter under its name.

    Attributes
    ----------
    alone_tok_s
        Output tokens a second of requests one after the other, from their first token to their last.
    together_tok_s
        Of all requests of a group together, while all of them decode.
    ratio
        ``together_tok_s / alone_tok_s``.
    num_diverged
        Answers whose ids are others in company than alone.
    """

    concurrency: int
    num_groups: int
    alone_tok_s: dict[str, float]
    together_tok_s: dict[str, float]
    ratio: dict[str, float]
    num_diverged: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run_concurrency(
    engine: Engine, requests: Sequence[BenchRequest], options: BenchOptions, concurrency: int
) -> ConcurrencySummary:
    """Measure groups of ``concurrency`` requests, their first turns; fewer are repeated, a rest is left out.

    Answers go on past end-of-text, so that all of a group decode ``max_new_tokens`` tokens. Of each group all arms run
    alone and together, in an order that turns round from group to group.
    """
    if concurrency < 2:
        raise RequestError(f"concurrency: got {concurrency}, expected at least 2", param="concurrency")
    if options.max_new_tokens < _LEAST_TOKENS:
        raise RequestError(
            f"max_tokens: got {options.max_new_tokens}, expected at least {_LEAST_TOKENS}: a rate needs steps",
            param="max_tokens",
        )
    if len(requests) < concurrency:
        requests = [requests[index % len(requests)] for index in range(concurrency)]
    groups = [
        requests[at : at + concurrency] for at in range(0, len(requests) - concurrency + 1, concurrency)
    ]
    arms = {"plain": None, options.drafter: options.drafter}
    clocks = {(name, how): _Clock() for name in arms for how in ("alone", "together")}
    num_diverged = dict.fromkeys(arms, 0)
    for drafter in arms.values():
        _together(engine, _requests_of(engine, groups[0], options, drafter, 0, _WARM_UP_TOKENS))
    for number, group in enumerate(groups):
        answers: dict[tuple[str, str], list[Answer]] = {}
        order = list(clocks)
        for name, how in order if number % 2 == 0 else reversed(order):
            asked = _requests_of(
                engine, group, options, arms[name], number * concurrency, options.max_new_tokens
            )
            if how == "alone":
                for request in asked:
                    [answer] = _together(engine, [request])
                    clocks[name, how].add([answer])
                    answers.setdefault((name, how), []).append(answer)
            else:
                answers[name, how] = _together(engine, asked)
                clocks[name, how].add(answers[name, how])
        for name in arms:
            pairs = zip(answers[name, "alone"], answers[name, "together"], strict=True)
            num_diverged[name] += sum(one.token_ids != other.token_ids for one, other in pairs)
    alone, together = ({name: clocks[name, how].rate for name in arms} for how in ("alone", "together"))
    ratio = {name: together[name] / alone[name] for name in arms}
    return ConcurrencySummary(concurrency, len(groups), alone, together, ratio, num_diverged)


class _Clock:
    """Tokens and seconds in which every answer of a set was decoding."""

    def __init__(self) -> None:
        self._num_tokens, self._seconds = 0, 0.0

    def add(self, answers: Sequence[Answer]) -> None:
        """Answers that were asked for at the same moment."""
        begin = max(answer.chunks[0].elapsed_s for answer in answers)
        end = min(answer.elapsed_s for answer in answers)
        self._seconds += end - begin
        for answer in answers:
            counts = [chunk.num_tokens for chunk in answer.chunks if begin <= chunk.elapsed_s <= end]
            self._num_tokens += counts[-1] - counts[0] if counts else 0

    @property
    def rate(self) -> float:
        return self._num_tokens / self._seconds


def _requests_of(
    engine: Engine,
    group: Sequence[BenchRequest],
    options: BenchOptions,
    drafter: str | None,
    first_index: int,
    max_new_tokens: int,
) -> list[GenerateRequest]:
    asked = []
    for index, request in enumerate(group, start=first_index):
        sampling = SamplingParams(
            max_new_tokens=max_new_tokens,
            temperature=options.temperature,
            seed=options.seed + index,
            ignore_eos=True,
        )
        text = request.turns[0]
        messages = [{"role": "user", "content": text}]
        ids = engine.apply_chat_template(messages) if options.is_chat else engine.tokenize(text)
        asked.append(options.request(ids, sampling, drafter))
    return asked


def _together(engine: Engine, asked: Sequence[GenerateRequest]) -> list[Answer]:
    """Answers with times from one common moment; a reader each, as many clients would."""
    began = time.perf_counter()
    answers: dict[int, Answer] = {}
    errors: list[Exception] = []

    def read(index: int) -> None:
        try:
            answers[index] = decode_answer(engine, asked[index], began=began)
        except Exception as error:
            errors.append(error)

    readers = [threading.Thread(target=read, args=(index,)) for index in range(len(asked))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    if errors:
        raise EngineError(f"a request of the group failed: {errors[0]}") from errors[0]
    return [answers[index] for index in range(len(asked))]
