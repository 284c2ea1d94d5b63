"""What the parts of a verify step cost on this machine: the target by rows and form, the head, a draft by positions."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.errors import Unsupported
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.engine import ReferenceEngine

__all__ = ["Form", "PartTimes", "measure_parts"]

Form = Literal["chain", "path", "wy"]
"""Rows of a chain, or of a tree with Gated DeltaNet layers along paths or in the WY form."""

_CONTEXT = 128
_REPEATS = 7
_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)


@dataclass(frozen=True)
class PartTimes:
    """Medians in microseconds, behind 128 tokens of context.

    Attributes
    ----------
    rows
        Numbers of rows that were timed.
    layers_us
        All layers of the target, by form and number of rows.
    full_head_us, certified_head_us
        The LM head, whole and certified, by number of rows; None: the target has no certified head.
    draft_us
        A draft by (drafter, positions, is it for a tree).
    """

    rows: tuple[int, ...]
    layers_us: dict[Form, tuple[float, ...]]
    full_head_us: tuple[float, ...]
    certified_head_us: tuple[float, ...] | None
    draft_us: dict[tuple[str, int, bool], float]

    def step_us(
        self, drafter: str, num_positions: int, form: Form, num_rows: float, *, is_certified: bool
    ) -> float:
        """Draft, layers and head of a step; between two timed numbers of rows on a line."""
        head_us = self.certified_head_us if is_certified and self.certified_head_us else self.full_head_us
        target_us = np.interp(num_rows, self.rows, np.add(self.layers_us[form], head_us))
        return float(target_us) + self.draft_us[drafter, num_positions, form != "chain"]


@torch.inference_mode()
def measure_parts(
    engine: ReferenceEngine, positions: Sequence[tuple[str, int]], rows: Sequence[int] = _ROWS
) -> PartTimes:
    """Time every part alone; ``positions`` are the (drafter, positions) to draft with."""
    target = engine.target
    ids = torch.arange(_CONTEXT) * 7 % target.config.vocab_size
    taps = tuple(sorted({tap for name, _ in positions for tap in engine.drafters[name].target_taps}))
    state = target.new_state(min(_CONTEXT + 64, target.config.context_length))
    state.open_rows(_CONTEXT, is_decided=True)
    tapped = target.forward_batch(ids, [state], taps=taps).taps.view(_CONTEXT, len(taps), -1 if taps else 0)
    state.commit(_CONTEXT)
    hidden = torch.zeros(max(rows), target.config.hidden_size)

    def run_rows(form: Form, num_rows: int) -> None:
        """Rows of a chain, or of a tree whose nodes have two children each; dropped again."""
        chunk = torch.zeros(num_rows, dtype=torch.int64)
        parents = (np.arange(num_rows) + 1) // 2 - 1
        if form == "chain" or num_rows == 1:
            state.open_rows(num_rows)
        else:
            state.open_rows(num_rows, parents=parents, gdn_form=form)
        hidden[:num_rows] = target.forward_batch(chunk, [state]).hidden
        state.commit(0)

    is_hybrid = isinstance(target.config, TargetConfig) and "linear_attention" in target.config.layer_types
    forms = [form for form in get_args(Form) if form != "wy" or (is_hybrid and target.mode == "serve")]
    layers_us: dict[Form, tuple[float, ...]] = {}
    for form in forms:
        times = [_median_us(functools.partial(run_rows, form, count)) for count in rows]
        layers_us[form] = tuple(np.maximum.accumulate(times).tolist())
    full_head = [_median_us(functools.partial(target.logits, hidden[:count])) for count in rows]
    certified_head = None
    try:
        certified = engine.copies.certified_head()
    except Unsupported:
        pass
    else:
        times = [_median_us(functools.partial(certified.rows, hidden[:count])) for count in rows]
        certified_head = tuple(np.maximum.accumulate(times).tolist())
    draft_us = {}
    for name, count in positions:
        drafter = engine.drafters[name]
        draft_state = drafter.new_state(_CONTEXT + 64)
        own = tapped[:, [taps.index(tap) for tap in drafter.target_taps]].flatten(1)
        drafter.append_context(draft_state, ids, own)
        for is_tree in (False, True):
            request = ProposeRequest(draft_state, 0, num_positions=count, is_tree=is_tree)
            draft_us[name, count, is_tree] = _median_us(functools.partial(propose_all, drafter, [request]))
    return PartTimes(
        tuple(rows),
        layers_us,
        tuple(np.maximum.accumulate(full_head).tolist()),
        certified_head,
        draft_us,
    )


def _median_us(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)
