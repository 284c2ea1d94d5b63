"""Continuous batching: who runs, who waits, and the one thread that runs them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specpilot.errors import ConfigError, EngineError, Overloaded, RequestError
from specpilot.refengine.jobs import PROMPT_ROWS, Job

__all__ = ["Limits", "Scheduler"]

# While requests wait for their readers, or for memory, the thread looks at cancel tokens this often.
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

    Every method may be called from any thread. ``run_step`` runs one step of some jobs, on the scheduler's thread,
    and lets none of their failures out.
    """

    def __init__(self, run_step: Callable[[Sequence[Job]], None], limits: Limits) -> None:
        self._run_step, self._limits = run_step, limits
        self._running: list[Job] = []
        self._waiting: deque[Job] = deque()
        # Reentrant: a reader that is collected gives its job up on whichever thread that happens.
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
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
            num_leaving = sum(job.is_over or job.is_given_up for job in self._running)
            if len(self._waiting) > self._limits.max_waiting + num_leaving:
                self._waiting.remove(job)
                raise Overloaded(
                    f"got a request while {len(self._running)} run and {len(self._waiting)} wait, expected at most "
                    f"{self._limits.max_waiting} to wait; try again later"
                )
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
                self._thread.start()
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
                for jobs in (self._running, self._waiting)
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
        """End the thread after its step; jobs that are left fail."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_S)
        for job in (*self._running, *self._waiting):
            if not job.is_over:
                job.fail(EngineError("the engine was stopped before the request ended"))

    @torch.inference_mode()
    def _work(self) -> None:
        while True:
            with self._changed:
                self._sweep()
                jobs = [job for job in self._running if not job.is_blocked]
                if self._is_stopped:
                    return
                if not jobs:
                    is_idle = not self._running and not self._waiting
                    self._changed.wait(None if is_idle else _POLL_S)
                    continue
            self._run_step(jobs)

    def _sweep(self) -> None:
        """Between two steps, on the scheduler's thread: who has ended goes, who waits comes."""
        for job in self._running:
            if job.cancel.is_cancelled and not job.is_over:
                job.end_cancelled()
        num_running = len(self._running)
        self._running = [job for job in self._running if not (job.is_over or job.is_given_up)]
        num_waiting = len(self._waiting)
        self._sweep_waiting()
        self._admit()
        if len(self._running) < num_running or len(self._waiting) < num_waiting:
            self._changed.notify_all()

    def _sweep_waiting(self) -> None:
        for job in self._waiting:
            if job.cancel.is_cancelled:
                job.end_cancelled()
        self._waiting = deque(job for job in self._waiting if not (job.is_over or job.is_given_up))

    def _admit(self) -> None:
        """Let waiting jobs run, in their order, while there is a place and room for the first one."""
        held = sum(job.num_reserved_tokens for job in self._running)
        while self._waiting and len(self._running) < self._limits.max_running:
            held += self._waiting[0].num_reserved_tokens
            if held > self._limits.max_kv_tokens:
                return
            self._running.append(self._waiting.popleft())
