"""The reference engine's side: answers, margins under teacher forcing, and the drafts at given places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specpilot.draft import Draft
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.refengine.engine import ReferenceEngine

__all__ = ["Answer", "answer", "drafts_along"]


@dataclass(frozen=True)
class Answer:
    """Tokens of an answer, and the answer's length after the prompt's token and after every verify step."""

    output_ids: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def num_steps(self) -> int:
        return len(self.lengths) - 1


def answer(
    engine: ReferenceEngine, prompt_ids: Sequence[int], drafter: str | None, max_new_tokens: int
) -> Answer:
    """Greedy, end-of-text ignored."""
    params = SamplingParams(max_new_tokens=max_new_tokens, ignore_eos=True)
    output: list[int] = []
    lengths: list[int] = []
    for chunk in engine.generate(GenerateRequest(prompt_ids, params, drafter)):
        output += chunk.token_ids
        lengths.append(len(output))
    return Answer(tuple(output), tuple(lengths))


@torch.inference_mode()
def drafts_along(
    engine: ReferenceEngine, drafter_name: str, prompt_ids: Sequence[int], answer_row: Answer, num_steps: int
) -> list[Draft]:
    """What a drafter proposes at the beginning of each of the first steps of a given answer, teacher forced."""
    drafter, target = engine.drafters[drafter_name], engine.target
    ids = [*prompt_ids, *answer_row.output_ids]
    state, draft_state = target.new_state(len(ids)), drafter.new_state(len(ids) + drafter.block_size)
    drafts, done = [], 0
    for length in answer_row.lengths[:num_steps]:
        anchor_at = len(prompt_ids) + length - 1
        rows = torch.tensor(ids[done:anchor_at])
        out = target.forward(rows, state, taps=drafter.target_taps)
        state.commit(len(rows))
        drafter.append_context(draft_state, rows, out.taps)
        drafts.append(drafter.propose(draft_state, ids[anchor_at]))
        done = anchor_at
    return drafts
