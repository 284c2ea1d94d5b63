"""Measures what whole steps cost here by their rows, for trees that stop by it and for choosing between mechanisms."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from specpilot.draft.drafter import Draft, Drafter
from specpilot.draft.lattice import Lattice
from specpilot.draft.step_cost import StepCost
from specpilot.draft.tree import DraftTree
from specpilot.engines.base import SamplingParams
from specpilot.engines.mechanisms import MAX_TREE_NODES
from specpilot.refengine.drafting import DraftWish, fulfil
from specpilot.refengine.sequence import DecodingSequence
from specpilot.refengine.speculation import SpeculationPlan
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser

__all__ = ["measure_step_costs"]

_ROWS = (1, 2, 4, 8, 16, 32, MAX_TREE_NODES)
_CONTEXT = 128
_REPEATS = 6


class _ShapedTrees:
    """Trees of so many nodes with two children each, whatever the lattice: what is timed is not what is accepted."""

    name = "best_first"
    num_nodes = 1

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        nodes = np.arange(self.num_nodes)
        logprobs = -np.floor(np.log2(nodes + 1)).astype(np.float32)
        return DraftTree(nodes, (nodes + 1) // 2 - 1, logprobs)


@torch.inference_mode()
def measure_step_costs(
    target: Target, drafters: Mapping[str, Drafter], num_positions: int | None = None
) -> dict[str, StepCost]:
    """Cost of a step of one request, by drafter.

    A step is timed as decoding runs it: draft, lattice, forward of a tree of so many rows, head, walk, the drafter's
    context and the commit; only text and queues are left out. Behind about 128 tokens, the least of six steps, for what
    other work takes of the machine is no cost of a row; rows take turns, so that a drift of the machine falls on all. A
    time that falls as rows are added is noise and is raised to the one before.

    Parameters
    ----------
    num_positions
        Drafted positions; None: as many as each drafter was trained for.
    """
    return {name: _cost_of(target, drafter, num_positions) for name, drafter in drafters.items()}


def _cost_of(target: Target, drafter: Drafter, num_positions: int | None) -> StepCost:
    shapes, positions = _ShapedTrees(), num_positions or drafter.block_size - 1
    # Steps keep a few tokens each.
    room = 2 * len(_ROWS) * _REPEATS + 2 * MAX_TREE_NODES
    length = max(1, min(_CONTEXT, target.config.context_length - room))
    plan = SpeculationPlan(drafter, shapes.name, shapes, MAX_TREE_NODES, positions)
    sequence = _begin(target, plan, length, min(length + room, target.config.context_length))
    times: dict[int, list[float]] = {rows: [] for rows in _ROWS}
    for _ in range(_REPEATS):
        for rows in _ROWS:
            if sequence.state.num_tokens + rows + positions >= sequence.state.max_tokens:
                break
            shapes.num_nodes = rows
            times[rows].append(_time_step_us(target, sequence))
    least = {rows: min(found) for rows, found in times.items() if found}
    return StepCost(tuple(least), tuple(np.maximum.accumulate(list(least.values())).tolist()))


def _begin(target: Target, plan: SpeculationPlan, length: int, max_tokens: int) -> DecodingSequence:
    """A sequence whose prompt has been run."""
    chooser = TokenChooser(SamplingParams(max_new_tokens=1), generator=torch.Generator().manual_seed(0))
    ids = [number * 7 % target.config.vocab_size for number in range(length)]
    sequence = DecodingSequence(target, plan, chooser, ids, max_tokens)
    out = target.forward_batch(sequence.open_prompt(length), [sequence.state], taps=sequence.target_taps)
    sequence.accept_prompt(out.taps)
    sequence.state.commit(length)
    sequence.choose_first(target.logits(out.hidden[-1:]))
    return sequence


def _take_some(wish: DraftWish, draft: Draft, tree: DraftTree | None) -> None:
    """A drafter that has nothing to propose would make the step a plain one: a draft of one token stands in."""
    if tree is None and wish.builder is not None:
        ids, edges = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, 1)
        draft = Draft(ids[0], None, Lattice(ids, edges))
        tree = wish.builder.build(draft.lattice, wish.request.anchor_id, wish.max_rows)
    wish.take(draft, tree)


def _time_step_us(target: Target, sequence: DecodingSequence) -> float:
    """Run one step of a sequence that decodes alone, on one level; its time in microseconds."""
    began = time.perf_counter()
    wish = sequence.want_draft()
    if wish is not None:
        fulfil([replace(wish, take=functools.partial(_take_some, wish))])
    ids = sequence.open_step()
    out = target.forward_batch(ids, [sequence.state], taps=sequence.target_taps)
    result = sequence.accept_step(target.logits(out.hidden), out.taps)
    sequence.state.commit(result.kept)
    return (time.perf_counter() - began) * 1e6
