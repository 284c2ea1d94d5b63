"""One pass: a system answers a list of prompts, a fixed number of them in flight, timed from outside."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specpilot.controller.clock import Clock
from specpilot.controller.slots.base import Endpoint
from specpilot.errors import EngineError
from specpilot.requests.sets import Prompt

__all__ = ["NUM_WARM_UP_TOKENS", "Measured", "Pass", "ask", "closed_loop", "run_pass", "warm_up_prompts"]

NUM_WARM_UP_TOKENS = 16
_WARM_UP_SEED = 20_251_103


@dataclass(frozen=True)
class Measured:
    """One answer with the controller's times, seconds from when it was asked."""

    key: str
    benchmark: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    finish_reason: str
    first_s: float
    elapsed_s: float
    num_steps: int | None = None

    @property
    def tok_s(self) -> float:
        """Output tokens a second, prefill included."""
        return len(self.output_ids) / self.elapsed_s


@dataclass(frozen=True)
class Pass:
    """``answers`` in the prompts' order; ``repeats`` are prompts asked a second time, after all others."""

    batch_size: int
    answers: tuple[Measured, ...]
    repeats: tuple[Measured, ...]


def run_pass(
    endpoint: Endpoint,
    prompts: Sequence[Prompt],
    batch_size: int,
    max_new_tokens: int,
    clock: Clock,
    num_repeats: int = 0,
) -> Pass:
    """Warm up, ask every prompt once, then the first ``num_repeats`` again.

    The warm-up is the controller's and the same for every system: short answers to :func:`warm_up_prompts`.
    """
    warm_up = warm_up_prompts(prompts, max(2, batch_size))
    closed_loop(endpoint, warm_up, batch_size, NUM_WARM_UP_TOKENS, clock)
    answers = closed_loop(endpoint, prompts, batch_size, max_new_tokens, clock)
    repeats = closed_loop(endpoint, prompts[:num_repeats], batch_size, max_new_tokens, clock)
    return Pass(batch_size, tuple(answers), tuple(repeats))


def warm_up_prompts(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Random token ids as long as the prompts are: nobody times what is done on them, so they say nothing of those.

    The same for the same prompts in any order.
    """
    generator = np.random.default_rng(_WARM_UP_SEED)
    timed = {prompt.prompt_ids for prompt in prompts}
    lengths = sorted(map(len, timed))
    num_ids = max(map(max, timed)) + 1
    made = []
    for index in range(count):
        ids = tuple(
            generator.integers(num_ids, size=lengths[(2 * index + 1) * len(lengths) // (2 * count)]).tolist()
        )
        while ids in timed or ids[::-1] in timed:
            ids += (int(generator.integers(num_ids)),)
        made.append(Prompt(f"warm-up/{index}", "", 1, ids))
    return made


def ask(endpoint: Endpoint, prompt: Prompt, max_new_tokens: int, clock: Clock) -> Measured:
    """One answer.

    Raises
    ------
    EngineError
        The system failed, gave no token, or ended without a finish reason.
    """
    began = clock.now_s()
    ids: list[int] = []
    first = reason = num_steps = None
    for piece in endpoint.answer(prompt.prompt_ids, max_new_tokens):
        ids += piece.token_ids
        if ids and first is None:
            first = clock.now_s() - began
        reason, num_steps = piece.finish_reason, piece.num_steps
    elapsed = clock.now_s() - began
    if reason is None or first is None or elapsed <= 0.0:
        raise EngineError(
            f"request {prompt.key}: got {len(ids)} tokens, finish reason {reason!r}; the answer was cut"
        )
    return Measured(
        prompt.key, prompt.benchmark, prompt.prompt_ids, tuple(ids), reason, first, elapsed, num_steps
    )


def closed_loop(
    endpoint: Endpoint, prompts: Sequence[Prompt], batch_size: int, max_new_tokens: int, clock: Clock
) -> list[Measured]:
    """``batch_size`` clients, each asking the next prompt as soon as its last answer has ended."""
    if batch_size == 1:
        return [ask(endpoint, prompt, max_new_tokens, clock) for prompt in prompts]
    done: dict[int, Measured] = {}
    errors: list[Exception] = []
    todo = iter(range(len(prompts)))
    lock = threading.Lock()

    def client() -> None:
        while not errors:
            with lock:
                index = next(todo, None)
            if index is None:
                return
            try:
                done[index] = ask(endpoint, prompts[index], max_new_tokens, clock)
            except Exception as error:
                errors.append(error)

    clients = [threading.Thread(target=client) for _ in range(batch_size)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    if errors:
        raise EngineError(f"a request failed: {errors[0]}") from errors[0]
    return [done[index] for index in range(len(prompts))]
