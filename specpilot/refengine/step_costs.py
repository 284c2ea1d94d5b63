"""Measures what a step costs here by its rows, for trees that stop by it."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from specpilot.draft.drafter import Drafter
from specpilot.draft.step_cost import StepCost
from specpilot.engines.mechanisms import MAX_TREE_NODES
from specpilot.refengine.state import SequenceState
from specpilot.refengine.target import Target

__all__ = ["measure_step_costs"]

_ROWS = (1, 2, 4, 8, 16, 32, MAX_TREE_NODES)
_CONTEXT = 128
_REPEATS = 5


@torch.inference_mode()
def measure_step_costs(target: Target, drafters: Mapping[str, Drafter]) -> dict[str, StepCost]:
    """Cost of a step of one request, by drafter.

    The target's part is the median of five forwards of a tree of so many rows behind 128 tokens, head included; the
    drafter's is that of five of its drafts behind the same tokens, the same for every tree. A time that falls as rows
    are added is noise and is raised to the one before.
    """
    length = max(1, min(_CONTEXT, target.config.context_length - MAX_TREE_NODES))
    ids = torch.arange(length) * 7 % target.config.vocab_size
    taps = tuple(sorted({tap for drafter in drafters.values() for tap in drafter.target_taps}))
    state = target.new_state(min(length + MAX_TREE_NODES, target.config.context_length))
    state.open_rows(length, is_decided=True)
    tapped = target.forward_batch(ids, [state], taps=taps).taps.view(length, len(taps), -1 if taps else 0)
    state.commit(length)
    verify_us = [_median_us(functools.partial(_verify, target, state, num_rows)) for num_rows in _ROWS]
    costs = {}
    for name, drafter in drafters.items():
        draft_state = drafter.new_state(length)
        own = tapped[:, [taps.index(tap) for tap in drafter.target_taps]].flatten(1)
        drafter.append_context(draft_state, ids, own)
        draft_us = _median_us(functools.partial(drafter.propose, draft_state, 0))
        times_us = np.maximum.accumulate(verify_us) + draft_us
        costs[name] = StepCost(_ROWS, tuple(times_us.tolist()))
    return costs


def _verify(target: Target, state: SequenceState, num_rows: int) -> None:
    """A tree whose nodes have two children each, dropped again."""
    parents = (np.arange(num_rows) + 1) // 2 - 1
    state.open_rows(num_rows, parents=parents)
    target.logits(target.forward_batch(torch.zeros(num_rows, dtype=torch.int64), [state]).hidden)
    state.commit(0)


def _median_us(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)
