"""The reference engine's side: answers, margins under teacher forcing, and the drafts at given places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specpilot.draft import Draft
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.refengine.engine import ReferenceEngine

__all__ = ["Answer", "answer", "drafts_along", "steps_along"]


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


@torch.inference_mode()
def steps_along(
    engine: ReferenceEngine, drafter_name: str, prompt_ids: Sequence[int], output_ids: Sequence[int]
) -> Answer:
    """The verify steps a drafter would take if the target said ``output_ids``, teacher forced: drafts count while they
    are the text's own tokens, and the text's next token is the bonus."""
    drafter, target = engine.drafters[drafter_name], engine.target
    ids = [*prompt_ids, *output_ids]
    state, draft_state = target.new_state(len(ids)), drafter.new_state(len(ids) + drafter.block_size)
    lengths, done = [1], 0
    while lengths[-1] < len(output_ids):
        anchor_at = len(prompt_ids) + lengths[-1] - 1
        rows = torch.tensor(ids[done:anchor_at])
        out = target.forward(rows, state, taps=drafter.target_taps)
        state.commit(len(rows))
        drafter.append_context(draft_state, rows, out.taps)
        draft = drafter.propose(draft_state, ids[anchor_at]).token_ids.tolist()
        following = ids[anchor_at + 1 :]
        count = next(
            (i for i, pair in enumerate(zip(draft, following, strict=False)) if pair[0] != pair[1]),
            min(len(draft), len(following)),
        )
        lengths.append(min(lengths[-1] + count + 1, len(output_ids)))
        done = anchor_at
    return Answer(tuple(output_ids), tuple(lengths))
