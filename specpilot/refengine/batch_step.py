"""One step of all running requests: who runs which rows, one forward for all of them, and what each makes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot.engines.mechanisms import BatchMechanisms
from specpilot.refengine.drafting import draft_step
from specpilot.refengine.jobs import PROMPT_ROWS, Job, OpenRows, StepTimes
from specpilot.refengine.state import commit_rows
from specpilot.refengine.target import Target

__all__ = ["plan_step", "run_step"]

_STOCK = BatchMechanisms()


def plan_step(jobs: Sequence[Job], batch: BatchMechanisms = _STOCK) -> list[tuple[Job, int]]:
    """Each job with the number of prompt rows it runs next; 0 for a decoding step. Jobs that get no rows are left out.

    Every answer that is decoding goes on. Prompts share the step's prompt rows (:data:`PROMPT_ROWS`, or
    ``batch.prompt_rows``) evenly, and what a short one leaves goes to the others; of equals the first come gets more.

    Prompt admission: a prompt of at most ``batch.whole_prompt_rows`` tokens that would get less than all its rows gets
    all of them beside the share of the others, shortest first, while such prompts together have no more than that many
    rows: a running answer waits for ``prompt_rows + whole_prompt_rows`` rows of prompts at most.
    """
    plan = [(job, 0) for job in jobs if job.num_prompt_left == 0]
    waiting = sorted((job for job in jobs if job.num_prompt_left > 0), key=lambda job: job.num_prompt_left)
    shares = _share_prompt_rows(waiting, batch.prompt_rows or PROMPT_ROWS)
    if batch.whole_prompt_rows:
        whole = _admit_whole(waiting, shares, batch.whole_prompt_rows)
        rest = [job for job in waiting if id(job) not in whole]
        plan += [(job, job.num_prompt_left) for job in waiting if id(job) in whole]
        waiting, shares = rest, _share_prompt_rows(rest, batch.prompt_rows or PROMPT_ROWS)
    return plan + [(job, share) for job, share in zip(waiting, shares, strict=True) if share]


def _share_prompt_rows(waiting: Sequence[Job], num_rows: int) -> list[int]:
    """Rows of each prompt; ``waiting`` stands in the order of what they have left."""
    shares = []
    for index, job in enumerate(waiting):
        share = min(-(-num_rows // (len(waiting) - index)), job.num_prompt_left)
        num_rows -= share
        shares.append(share)
    return shares


def _admit_whole(waiting: Sequence[Job], shares: Sequence[int], most: int) -> set[int]:
    """Identities of the prompts that are held back without need."""
    whole: set[int] = set()
    left = most
    for job, share in zip(waiting, shares, strict=True):
        num_tokens = job.state.num_tokens + job.num_prompt_left
        if share < job.num_prompt_left <= left and num_tokens <= most:
            whole.add(id(job))
            left -= job.num_prompt_left
    return whole


def run_step(target: Target, jobs: Sequence[Job], batch: BatchMechanisms = _STOCK) -> None:
    """Run one step of ``jobs``. A job that fails ends; the others do not notice.

    If the forward itself fails, all its jobs do: their states may hold half of it.
    """
    step_began = time.perf_counter()
    plan = plan_step([job for job in jobs if _has_started(job)], batch)
    draft_step([job for job, num_prompt_rows in plan if num_prompt_rows == 0], batch.node_budget)
    opened: list[tuple[Job, OpenRows]] = []
    for job, num_prompt_rows in plan:
        if job.is_over:
            continue
        try:
            opened.append((job, job.open_rows(num_prompt_rows)))
        except Exception as error:
            job.fail(error)
    if not opened:
        return
    try:
        _run_opened(target, opened, step_began)
    except Exception as error:
        for job, _ in opened:
            if not job.is_over:
                job.fail(error)


def _has_started(job: Job) -> bool:
    try:
        job.start()
    except Exception as error:
        job.fail(error)
    return not job.is_over


def _run_opened(target: Target, opened: Sequence[tuple[Job, OpenRows]], step_began: float) -> None:
    taps = tuple(sorted({tap for job, _ in opened for tap in job.target_taps}))
    times = StepTimes(step_began, time.perf_counter())
    out = target.forward_batch(
        torch.cat([rows.ids for _, rows in opened]), [job.state for job, _ in opened], taps=taps
    )
    sizes = [len(rows.ids) for _, rows in opened]
    num_logits = [size - rows.first_logit for size, (_, rows) in zip(sizes, opened, strict=True)]
    hidden = out.hidden
    if any(rows.first_logit for _, rows in opened):
        parts = hidden.split(sizes)
        hidden = torch.cat([part[rows.first_logit :] for part, (_, rows) in zip(parts, opened, strict=True)])
    logits = target.logits(hidden).split(num_logits)
    by_layer = out.taps.view(len(out.taps), len(taps), out.taps.shape[1] // max(1, len(taps)))
    states, kept_rows = [], list[int | NDArray[np.int64]]()
    for (job, _), job_logits, job_taps in zip(opened, logits, by_layer.split(sizes), strict=True):
        if job.target_taps != taps:
            job_taps = job_taps[:, [taps.index(tap) for tap in job.target_taps]]
        try:
            kept = job.accept(job_logits, job_taps.flatten(1), times)
        except Exception as error:
            job.fail(error)
        else:
            states.append(job.state)
            kept_rows.append(kept)
    commit_rows(states, kept_rows)
