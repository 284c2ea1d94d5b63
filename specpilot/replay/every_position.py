"""A lattice at every position of an answer, by teacher forcing.

The live engine drafts once a verify step, so the steps of one builder are not those of another. Here the answer is
known: the target runs over prompt and answer for its taps, and the drafter drafts after every token of the answer. In
judge mode a row's bits do not depend on the rows beside it, so a lattice is bit for bit what the engine would have got
there (``tests/specpilot/replay``), and :mod:`specpilot.replay.selection` can follow any builder through the answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from specpilot.draft.drafter import Drafter
from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.draft.recording import RecordedTimes, StepRecorder
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError
from specpilot.refengine.target import Target

__all__ = ["record_every_position"]

# Rows of one forward of the target.
_CHUNK_ROWS = 64


@torch.inference_mode()
def record_every_position(
    target: Target,
    drafter: Drafter,
    drafter_name: str,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    recorder: StepRecorder,
    request_id: str,
    *,
    num_positions: int | None = None,
) -> int:
    """Record a step of the root alone at every token of the answer but the last; gives their number.

    Parameters
    ----------
    prompt_ids, answer_ids
        The answer as the target gave it after the prompt, greedily.
    num_positions
        Depth of the lattices; None: what the drafter was trained for.

    Notes
    -----
    Recorded times hold what drafting took; the verification of a step that did not happen is 0.
    """
    if len(prompt_ids) < 1 or (num_positions is not None and num_positions < 1):
        raise ConfigError(
            f"positions: got {num_positions}, expected at least 1, after a prompt of at least one token"
        )
    tokens = [*prompt_ids, *answer_ids]
    # Drafts may reach past the answer's end.
    room = len(tokens) + (num_positions or drafter.block_size)
    state, draft_state = (
        target.new_state(min(len(tokens), target.config.context_length)),
        drafter.new_state(room),
    )
    num_recorded = 0
    for begin in range(0, len(tokens) - 2, _CHUNK_ROWS):
        ids = torch.tensor(tokens[begin : min(begin + _CHUNK_ROWS, len(tokens) - 2)])
        state.open_rows(len(ids), is_decided=True)
        taps = target.forward_batch(ids, [state], taps=drafter.target_taps).taps
        state.commit(len(ids))
        prompt_rows = min(max(len(prompt_ids) - begin, 0), len(ids))
        groups = [prompt_rows, *[1] * (len(ids) - prompt_rows)] if prompt_rows else [1] * len(ids)
        row = 0
        for size in groups:
            drafter.append_context(draft_state, ids[row : row + size], taps[row : row + size])
            row += size
            place = begin + row
            if place < len(prompt_ids):
                continue
            began = time.perf_counter()
            request = ProposeRequest(draft_state, tokens[place], num_positions=num_positions, is_tree=True)
            (draft,) = propose_all(drafter, [request])
            draft_us = (time.perf_counter() - began) * 1e6
            recorder.record(
                request_id,
                draft.lattice,
                tokens[place],
                DraftTree.chain(tokens[place], []),
                [tokens[place + 1]],
                RecordedTimes(draft_us, 0.0, draft_us),
                drafter=drafter_name,
                position=place,
            )
            num_recorded += 1
    return num_recorded
