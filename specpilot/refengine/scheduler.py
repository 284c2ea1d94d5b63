"""Continuous batching: who runs, who waits, and the threads that run them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specpilot.errors import ConfigError, EngineError, Overloaded, RequestError
from specpilot.refengine.jobs import PROMPT_ROWS, Job
from specpilot.refengine.lanes import Lane, Lanes
from specpilot_kernels.cpu_jit import share_threads

__all__ = ["Limits", "Scheduler"]

# While requests wait for their readers, or for memory, a thread looks at cancel tokens this often.
_POLL_S = 0.02
# How long the interpreter's end waits for a step to end.
_STOP_S = 10.0


@dataclass(frozen=True)
class Limits:
    """What running requests may take.

    Attributes
    ----------
    max_running
        Requests that run at the same time, 1 to ``PROMPT_ROWS``, so that every prompt gets a row in every step. Each
        has the fixed part of a sequence's state.
    max_waiting
        Requests that may wait for a place, >= 0.
    max_kv_tokens
        Tokens, prompts and longest answers together, for which running requests may hold keys and values.
    """

    max_running: int
    max_waiting: int
    max_kv_tokens: int

    def __post_init__(self) -> None:
        for name, least in (("max_running", 1), ("max_waiting", 0), ("max_kv_tokens", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: got {getattr(self, name)}, expected at least {least}")
        if self.max_running > PROMPT_ROWS:
            raise ConfigError(f"max_running: got {self.max_running}, expected at most {PROMPT_ROWS}")


class Scheduler:
    """First come, first served, without overtaking; jobs join and leave between steps.

    Every method may be called from any thread. ``run_step`` runs one step of some jobs and lets none of their failures
    out. It is called on ``num_lanes`` threads at the same time, each with the jobs of its lane; a job is in one lane at
    a time and goes to another between two steps. One request alone keeps one thread busy, and its kernels may use all.
    """

    def __init__(self, run_step: Callable[[Sequence[Job]], None], limits: Limits, num_lanes: int = 1) -> None:
        self._run_step, self._limits = run_step, limits
        self._lanes = Lanes(num_lanes)
        self._waiting: deque[Job] = deque()
        # Reentrant: a reader that is collected gives its job up on whichever thread that happens.
        self._changed = threading.Condition(threading.RLock())
        self._is_draining = self._is_stopped = False

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def submit(self, job: Job) -> None:
        """Take a job in; RequestError if it can never run, Overloaded if it cannot now."""
        if job.num_reserved_tokens > self._limits.max_kv_tokens:
            raise RequestError(
                f"got a request for up to {job.num_reserved_tokens} tokens, expected at most "
                f"{self._limits.max_kv_tokens}, which is all this engine keeps (max_kv_tokens); lower max_tokens or "
                "shorten the prompt",
                param="max_tokens",
                code="context_length_exceeded",
            )
        with self._changed:
            if self._is_draining or self._is_stopped:
                raise Overloaded(
                    "the engine is shutting down and takes no new requests; send this one elsewhere"
                )
            self._sweep_waiting()
            self._waiting.append(job)
            self._admit()
            # A place whose request has ended is free when the step that runs now has ended.
            num_leaving = sum(job.is_over or job.is_given_up for job in self._lanes.jobs)
            if len(self._waiting) > self._limits.max_waiting + num_leaving:
                self._waiting.remove(job)
                raise Overloaded(
                    f"got a request while {len(self._lanes.jobs)} run and {len(self._waiting)} wait, expected at most "
                    f"{self._limits.max_waiting} to wait; try again later"
                )
            self._changed.notify_all()

    def give_up(self, job: Job) -> None:
        """Nobody reads the job any more: it leaves before the next step."""
        with self._changed:
            job.is_given_up = True
            self._changed.notify_all()

    def wake(self) -> None:
        """A reader has caught up."""
        with self._changed:
            self._changed.notify_all()

    def counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        with self._changed:
            running, waiting = (
                sum(not (job.is_over or job.is_given_up) for job in jobs)
                for jobs in (self._lanes.jobs, self._waiting)
            )
            return running, waiting

    def drain(self, timeout_s: float) -> bool:
        """Refuse new jobs, wait for the others; True if all ended in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._is_draining = True
            while sum(self.counts()):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def stop(self) -> None:
        """End the threads after their steps; jobs that are left fail."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            threads = [lane.thread for lane in self._lanes]
        deadline = time.monotonic() + _STOP_S
        for thread in threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for job in (*self._lanes.jobs, *self._waiting):
            if not job.is_over:
                job.fail(EngineError("the engine was stopped before the request ended"))

    @torch.inference_mode()
    def _work(self, lane: Lane) -> None:
        while True:
            with self._changed:
                self._sweep(lane)
                jobs = [job for job in lane.jobs if not job.is_blocked]
                if self._is_stopped:
                    return
                if not jobs:
                    # Who waits for a place waits for running requests, whose lanes look after it.
                    self._changed.wait(_POLL_S if lane.jobs else None)
                    continue
                num_busy = self._lanes.num_busy
            share_threads(num_busy)
            self._run_step(jobs)

    def _sweep(self, lane: Lane) -> None:
        """Between two steps of a lane, on its thread: who has ended goes, who waits comes, some change lanes."""
        for job in lane.jobs:
            if job.cancel.is_cancelled and not job.is_over:
                job.end_cancelled()
        num_running = len(lane.jobs)
        lane.jobs = [job for job in lane.jobs if not (job.is_over or job.is_given_up)]
        num_waiting = len(self._waiting)
        self._sweep_waiting()
        self._admit()
        has_changed = len(lane.jobs) < num_running or len(self._waiting) < num_waiting
        for other in self._lanes.hand_over(lane):
            self._start(other)
            has_changed = True
        if has_changed:
            self._changed.notify_all()

    def _sweep_waiting(self) -> None:
        for job in self._waiting:
            if job.cancel.is_cancelled:
                job.end_cancelled()
        self._waiting = deque(job for job in self._waiting if not (job.is_over or job.is_given_up))

    def _admit(self) -> None:
        """Let waiting jobs run, in their order, while there is a place and room for the first one."""
        running = self._lanes.jobs
        held, num_running = sum(job.num_reserved_tokens for job in running), len(running)
        while self._waiting and num_running < self._limits.max_running:
            held += self._waiting[0].num_reserved_tokens
            if held > self._limits.max_kv_tokens:
                return
            num_running += 1
            self._start(self._lanes.add(self._waiting.popleft()))

    def _start(self, lane: Lane) -> None:
        if lane.thread is None:
            lane.thread = threading.Thread(target=self._work, args=(lane,), name="engine", daemon=True)
            lane.thread.start()
