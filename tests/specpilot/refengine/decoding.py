"""Drives one sequence without an engine around it."""

from __future__ import annotations

import torch

from specpilot.draft.drafter import Drafter
from specpilot.engines.base import SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.refengine.drafting import fulfil
from specpilot.refengine.sequence import DecodingSequence, StepResult
from specpilot.refengine.speculation import plan_speculation
from specpilot.refengine.state import commit_rows
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser

__all__ = ["decode", "decode_steps"]


def decode(
    target: Target,
    drafter: Drafter | None,
    prompt: list[int],
    count: int,
    parts: int = 1,
    mechanisms: Mechanisms = STOCK,
) -> tuple[list[int], int]:
    """``count`` greedy tokens and the verify steps they took; the prompt is run in so many parts."""
    tokens, steps = decode_steps(target, drafter, prompt, count, parts, mechanisms)
    return tokens, len(steps)


@torch.inference_mode()
def decode_steps(
    target: Target,
    drafter: Drafter | None,
    prompt: list[int],
    count: int,
    parts: int = 1,
    mechanisms: Mechanisms = STOCK,
    params: SamplingParams | None = None,
) -> tuple[list[int], list[StepResult]]:
    """As :func:`decode`, with what every step gave; ``params`` may ask for sampling, by seed 0."""
    params = params or SamplingParams(max_new_tokens=count)
    generator = torch.Generator().manual_seed(0)
    chooser = TokenChooser(params, bias=None, history=None, grammar=None, generator=generator)
    live = DecodingSequence(
        target, plan_speculation(target, drafter, mechanisms), chooser, prompt, len(prompt) + count
    )
    size = -(-len(prompt) // parts)
    while live.num_prompt_left:
        rows = live.open_prompt(min(size, live.num_prompt_left))
        out = target.forward_batch(rows, [live.state], taps=live.target_taps)
        live.accept_prompt(out.taps)
        live.state.commit(len(rows))
    tokens, steps = [live.choose_first(target.logits(out.hidden[-1:]))], []
    while len(tokens) < count:
        wish = live.want_draft()
        if wish is not None:
            fulfil([wish])
        rows = live.open_step()
        out = target.forward_batch(rows, [live.state], taps=live.target_taps)
        steps.append(live.accept_step(target.logits(out.hidden), out.taps))
        commit_rows([live.state], [steps[-1].kept])
        tokens += steps[-1].token_ids
    return tokens[:count], steps
