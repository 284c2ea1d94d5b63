"""The bundled models in judge mode, plain answers token by token, and answers by verify steps without a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch

from specpilot.draft.recording import StepRecorder
from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, BatchMechanisms, Mechanisms
from specpilot.models.build import build_engine
from specpilot.refengine.batch_step import run_step
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.generation import Generation
from specpilot.refengine.jobs import Job
from specpilot.refengine.speculation import plan_speculation
from specpilot.refengine.state import SequenceState
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser

__all__ = [
    "NUM_TOKENS",
    "RunStep",
    "bundled_engine",
    "committed",
    "decode_steps",
    "plain_answer",
    "prompts",
]

NUM_TOKENS = 32
"""Tokens of an answer."""

RunStep = Callable[[Target, Sequence[Job], BatchMechanisms], None]

_QUESTIONS = (
    "Tom has 14 apples and buys 25 more. How many apples does he have now?",
    "Write a function that returns the sum of a list of numbers.",
    "Say hello.",
)


@lru_cache(1)
def bundled_engine() -> ReferenceEngine:
    """Made once a process; nothing here changes it."""
    return build_engine(mode="judge")


@lru_cache(1)
def prompts() -> tuple[tuple[int, ...], ...]:
    """Prompts of different lengths."""
    engine = bundled_engine()
    return tuple(
        tuple(engine.apply_chat_template([{"role": "user", "content": text}])) for text in _QUESTIONS
    )


def committed(target: Target, token_ids: Sequence[int], max_tokens: int) -> SequenceState:
    """A state that holds these tokens, each run alone."""
    state = target.new_state(max_tokens)
    for token in token_ids:
        target.forward(torch.tensor([token]), state)
        state.commit(1)
    return state


@lru_cache(32)
@torch.inference_mode()
def plain_answer(prompt_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Greedy tokens, one row a step; the lowest id among equal logits. End-of-text does not end it."""
    target = bundled_engine().target
    state = committed(target, prompt_ids[:-1], len(prompt_ids) + NUM_TOKENS)
    answer = [prompt_ids[-1]]
    for _ in range(NUM_TOKENS):
        hidden = target.forward(torch.tensor(answer[-1:]), state).hidden
        logits = target.logits(hidden)[0]
        answer.append(int((logits == logits.max()).nonzero()[0]))
        state.commit(1)
    return tuple(answer[1:])


def decode_steps(
    prompt_ids: Sequence[Sequence[int]],
    drafter: str,
    mechanisms: Mechanisms = STOCK,
    batch: BatchMechanisms | None = None,
    *,
    chooser: type[TokenChooser] = TokenChooser,
    run: RunStep = run_step,
    recorder: StepRecorder | None = None,
    arrivals: Sequence[int] | None = None,
) -> list[tuple[int, ...]]:
    """Greedy answers by verify steps, all requests in every step; the parts of the engine without its threads.

    Request i comes after ``arrivals[i]`` steps; all at once without it.
    """
    engine, batch = bundled_engine(), batch or BatchMechanisms()
    sampling = SamplingParams(max_new_tokens=NUM_TOKENS, ignore_eos=True)
    plan = plan_speculation(engine.target, engine.drafters[drafter], mechanisms, batch, None, engine.copies)
    jobs = [
        Generation(
            engine.target,
            plan,
            engine.tokenizer,
            GenerateRequest(ids, sampling, drafter),
            chooser(sampling, generator=torch.Generator().manual_seed(0)),
            CancelToken(),
            recorder,
            f"request-{number}",
        )
        for number, ids in enumerate(prompt_ids)
    ]
    num_steps = 0
    with torch.inference_mode():
        while not all(job.is_over for job in jobs):
            came = [
                job for number, job in enumerate(jobs) if arrivals is None or arrivals[number] <= num_steps
            ]
            run(engine.target, [job for job in came if not job.is_over], batch)
            num_steps += 1
    return [tuple(token for chunk in _chunks(job) for token in chunk.token_ids) for job in jobs]


def _chunks(job: Generation) -> Iterator[Chunk]:
    """All results of a job that is over; raises what it failed with."""
    while True:
        chunk = job.outbox.get()
        yield chunk
        if chunk.finish_reason is not None:
            return
