"""Time verify steps of the bundled target by their rows: the data of ``specpilot.draft.step_cost.BUNDLED_STEP_COST``.

    python kernels/bench/bench_step_cost.py

A step: DFlash2 drafts 7 positions, a best-first tree is built, its rows run through the target as a chain of as many
rows in serve mode, the head gives all rows' logits, 3 rows are committed, the drafter's context grows. Numbers of rows
take turns. What is printed does not fall: a time below one of fewer rows is replaced by that one.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from specpilot.draft.builders import make_builder
from specpilot.models.drafters import load_drafter
from specpilot.models.folders import model_folders
from specpilot.refengine.target import Target, open_target
from specpilot_kernels.cpu_jit import max_threads, set_num_threads
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)
CONTEXT_TOKENS, COMMITTED, WARM_UP, SAMPLES = 300, 3, 10, 150


class Step:
    """One request far enough into its text; every step starts from the same state."""

    def __init__(self, target: Target, seed: int) -> None:
        _, _, folders = model_folders(None)
        self._target, self._drafter = target, load_drafter(folders["dflash2"], target=target)
        self._builder = make_builder("best_first")
        generator = torch.Generator().manual_seed(seed)
        self._ids = torch.randint(target.config.vocab_size, (CONTEXT_TOKENS + 64,), generator=generator)
        self._start()

    def _start(self) -> None:
        room = CONTEXT_TOKENS + 2000
        self._state, self._draft_state = self._target.new_state(room), self._drafter.new_state(room)
        ids = self._ids[:CONTEXT_TOKENS]
        taps = self._target.forward(ids, self._state, taps=self._drafter.target_taps).taps
        self._state.commit(len(ids))
        self._drafter.append_context(self._draft_state, ids, taps)

    def run(self, num_rows: int) -> None:
        if self._state.num_tokens > CONTEXT_TOKENS + 1500:
            self._start()
        draft = self._drafter.propose(self._draft_state, int(self._ids[0]))
        self._builder.build(draft.lattice, int(self._ids[0]), num_rows)
        ids = self._ids[:num_rows]
        output = self._target.forward(ids, self._state, taps=self._drafter.target_taps)
        self._target.logits(output.hidden)
        kept = min(COMMITTED, num_rows)
        self._state.commit(kept)
        self._drafter.append_context(self._draft_state, ids[:kept], output.taps[:kept])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time verify steps by their rows.")
    parser.add_argument("--threads", type=int, default=min(4, max_threads()))
    options = parser.parse_args()
    torch.set_num_threads(1)
    set_num_threads(options.threads)
    target = open_target(model_folders(None)[1], mode="serve")
    step = Step(target, 0)
    times = time_in_turns(
        {str(rows): lambda rows=rows: step.run(rows) for rows in ROWS},  # type: ignore[misc]
        WARM_UP,
        SAMPLES,
    )
    print(f"# {cpu_name()}, {options.threads} threads, {CONTEXT_TOKENS} tokens of context, samples {SAMPLES}")
    medians = []
    for rows in ROWS:
        p20, p50, p80 = (quantile(times[str(rows)], fraction) for fraction in (0.2, 0.5, 0.8))
        medians.append(p20)
        print(f"{rows:3} rows  p20/p50/p80 {p20:.0f}/{p50:.0f}/{p80:.0f} us", flush=True)
    rising = [round(float(time)) for time in np.maximum.accumulate(medians)]
    print(f"StepCost({ROWS}, {tuple(rising)})")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
