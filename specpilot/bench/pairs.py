"""Plain decoding (control) and one drafter (candidate) on the same prompts, in one process, taking turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specpilot.bench.answer import Answer, decode_answer
from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, BatchMechanisms, Mechanisms
from specpilot.errors import ConfigError, RequestError
from specpilot.requests.reading import BenchRequest

__all__ = ["BenchOptions", "Pair", "run_pairs"]

_WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class BenchOptions:
    """How requests are put to the engine.

    Attributes
    ----------
    is_chat
        Through the chat template; otherwise a prompt is continued as text.
    seed
        Request i samples with ``seed + i`` in both arms.
    has_loop_cut
        Statistics stop where an answer starts to repeat itself (``loops.find_loop_start``).
    mechanisms
        Of the drafter's arm.
    batch
        What the engine was built with.
    """

    drafter: str
    is_chat: bool = True
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    has_loop_cut: bool = True
    mechanisms: Mechanisms = STOCK
    batch: BatchMechanisms = field(default_factory=BatchMechanisms)

    def __post_init__(self) -> None:
        if self.drafter == "none":
            raise ConfigError("drafter: got 'none', expected a drafter to compare with plain decoding")

    def request(
        self, prompt_ids: Sequence[int], sampling: SamplingParams, drafter: str | None
    ) -> GenerateRequest:
        """A request of one arm; ``drafter`` None is plain decoding."""
        mechanisms = STOCK if drafter is None else self.mechanisms
        return GenerateRequest(prompt_ids, sampling, drafter, mechanisms=mechanisms)


@dataclass(frozen=True)
class Pair:
    """Both answers to one prompt."""

    prompt_ids: tuple[int, ...]
    plain: Answer
    speculative: Answer


def run_pairs(
    engine: Engine,
    requests: Sequence[BenchRequest],
    options: BenchOptions,
    on_request_done: Callable[[], None] = lambda: None,
) -> list[list[Pair]]:
    """Per request, one pair for each of its turns.

    The arm that goes first alternates from request to request, so a drift of the machine falls on both. A
    second turn follows the plain answer in both arms: the prompts of a pair are always the same.
    """
    for request in requests:
        if len(request.turns) > 1 and not options.is_chat:
            raise RequestError(
                f"request {request.id}: has several turns, which need the chat template", param="turns"
            )
    _warm_up(engine, requests[0], options)
    results = []
    for index, request in enumerate(requests):
        try:
            results.append(_run_request(engine, request, options, index))
        except RequestError as error:
            raise RequestError(f"request {request.id}: {error}", param=error.param, code=error.code) from None
        on_request_done()
    return results


def _run_request(engine: Engine, request: BenchRequest, options: BenchOptions, index: int) -> list[Pair]:
    sampling = SamplingParams(
        max_new_tokens=options.max_new_tokens, temperature=options.temperature, seed=options.seed + index
    )
    arms = (None, options.drafter) if index % 2 == 0 else (options.drafter, None)
    messages: list[dict[str, str]] = []
    pairs = []
    for turn in request.turns:
        messages.append({"role": "user", "content": turn})
        prompt_ids = engine.apply_chat_template(messages) if options.is_chat else engine.tokenize(turn)
        answers = {arm: decode_answer(engine, options.request(prompt_ids, sampling, arm)) for arm in arms}
        pairs.append(Pair(tuple(prompt_ids), answers[None], answers[options.drafter]))
        messages.append({"role": "assistant", "content": answers[None].text})
    return pairs


def _warm_up(engine: Engine, request: BenchRequest, options: BenchOptions) -> None:
    """First calls pay for allocation and thread teams; they are not measured."""
    prompt_ids = engine.apply_chat_template([{"role": "user", "content": request.turns[0]}])
    sampling = SamplingParams(max_new_tokens=_WARM_UP_TOKENS, ignore_eos=True)
    for arm in (None, options.drafter):
        decode_answer(engine, options.request(prompt_ids, sampling, arm))
