"""One step of all running requests: who runs which rows, one forward for all of them, and what each makes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from specpilot.refengine.jobs import PROMPT_ROWS, Job, OpenRows, StepTimes
from specpilot.refengine.state import commit_rows
from specpilot.refengine.target import Target

__all__ = ["plan_step", "run_step"]


def plan_step(jobs: Sequence[Job]) -> list[tuple[Job, int]]:
    """Each job with the number of prompt rows it runs next; 0 for a decoding step. Jobs that get no rows are left out.

    Every answer that is decoding goes on. Prompts share :data:`PROMPT_ROWS` evenly, and what a short one leaves goes
    to the others; of equals the first come gets more.
    """
    plan = [(job, 0) for job in jobs if job.num_prompt_left == 0]
    waiting = sorted((job for job in jobs if job.num_prompt_left > 0), key=lambda job: job.num_prompt_left)
    left = PROMPT_ROWS
    for index, job in enumerate(waiting):
        share = -(-left // (len(waiting) - index))
        num_rows = min(share, job.num_prompt_left)
        left -= num_rows
        if num_rows:
            plan.append((job, num_rows))
    return plan


def run_step(target: Target, jobs: Sequence[Job]) -> None:
    """Run one step of ``jobs``. A job that fails ends; the others do not notice.

    If the forward itself fails, all its jobs do: their states may hold half of it.
    """
    step_began = time.perf_counter()
    opened: list[tuple[Job, OpenRows]] = []
    for job, num_prompt_rows in plan_step([job for job in jobs if _has_started(job)]):
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
    states, num_kept = [], []
    for (job, _), job_logits, job_taps in zip(opened, logits, by_layer.split(sizes), strict=True):
        if job.target_taps != taps:
            job_taps = job_taps[:, [taps.index(tap) for tap in job.target_taps]]
        try:
            kept = job.accept(job_logits, job_taps.flatten(1), times)
        except Exception as error:
            job.fail(error)
        else:
            states.append(job.state)
            num_kept.append(kept)
    commit_rows(states, num_kept)
