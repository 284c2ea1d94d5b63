"""Drives one sequence without an engine around it."""

from __future__ import annotations

import torch

from specpilot.draft.drafter import Drafter
from specpilot.engines.base import SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.refengine.copies import TargetCopies
from specpilot.refengine.drafting import DraftWish, fulfil
from specpilot.refengine.sequence import DecodingSequence, StepResult
from specpilot.refengine.speculation import plan_speculation
from specpilot.refengine.state import commit_rows
from specpilot.refengine.target import Target
from specpilot.refengine.two_level import QCycle, q_step
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
    copies: TargetCopies | None = None,
) -> tuple[list[int], list[StepResult]]:
    """As :func:`decode`, with what every step gave.

    ``params`` may ask for sampling, by seed 0; ``copies`` has what two levels need.
    """
    params = params or SamplingParams(max_new_tokens=count)
    generator = torch.Generator().manual_seed(0)
    chooser = TokenChooser(params, bias=None, history=None, grammar=None, generator=generator)
    plan = plan_speculation(target, drafter, mechanisms, copies=copies)
    live = DecodingSequence(target, plan, chooser, prompt, len(prompt) + count)
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
        q_step([_Alone(live)])
        rows = live.open_step()
        out = target.forward_batch(rows, [live.state], taps=live.target_taps)
        steps.append(live.accept_step(target.logits(out.hidden), out.taps))
        commit_rows([live.state], [steps[-1].kept])
        tokens += steps[-1].token_ids
    return tokens[:count], steps


class _Alone:
    """A job that is a sequence and nothing else; its failures are the test's."""

    def __init__(self, live: DecodingSequence) -> None:
        self._live = live

    def want_draft(self) -> DraftWish | None:
        return self._live.want_draft()

    def want_q_pass(self) -> QCycle | None:
        return self._live.want_q_pass()

    def note_draft_time(self, draft_us: float) -> None:
        assert draft_us > 0

    def fail(self, error: BaseException) -> None:
        raise error
