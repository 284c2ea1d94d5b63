"""What the scheduler knows of a request: how much room it takes, whether it can go on, and the rows it wants run."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specpilot.engines.base import CancelToken
from specpilot.errors import EngineError, SpecPilotError
from specpilot.refengine.drafting import Drafting
from specpilot.refengine.state import SequenceState

__all__ = ["MAX_UNREAD", "PROMPT_ROWS", "Job", "OpenRows", "Outbox", "StepTimes"]

PROMPT_ROWS = 64
"""Prompt rows of one step, of all requests together: what a running answer may wait for between two of its tokens."""

MAX_UNREAD = 64
"""Results a request may be ahead of its reader; then it rests until one is read, and only it."""

Result = TypeVar("Result")


class Outbox(Generic[Result]):
    """Results of one request, from the thread that makes them to the one that reads them."""

    def __init__(self) -> None:
        self._items: SimpleQueue[Result | BaseException] = SimpleQueue()

    @property
    def is_full(self) -> bool:
        return self._items.qsize() >= MAX_UNREAD

    def put(self, result: Result) -> None:
        self._items.put(result)

    def fail(self, error: BaseException) -> None:
        """The reader gets an exception: the error itself if it was raised on purpose, else an EngineError."""
        if not isinstance(error, SpecPilotError):
            cause, error = error, EngineError(f"the request failed: {type(error).__name__}: {error}")
            error.__cause__ = cause
        self._items.put(error)

    def get(self) -> Result:
        """The next result; waits for it. Raises what the request failed with."""
        item = self._items.get()
        if isinstance(item, BaseException):
            raise item
        return item


@dataclass(frozen=True)
class OpenRows:
    """Rows of one request in the next forward.

    Attributes
    ----------
    ids : Tensor, (T,), int64
    first_logit : int
        Logits are wanted of the rows from this one on; T for none.
    """

    ids: Tensor
    first_logit: int


@dataclass(frozen=True)
class StepTimes:
    """``time.perf_counter`` seconds at which the step and its forward began."""

    step_began: float
    forward_began: float


class Job(Drafting, Protocol):
    """One request. Made by the thread that asks, run by the engine's; ``is_given_up`` may be set by any.

    Attributes
    ----------
    num_reserved_tokens
        Room in the memory of all running requests.
    is_over
        The last result has been put out; nothing more will be run.
    is_given_up
        Nobody reads the results any more.
    """

    cancel: CancelToken
    num_reserved_tokens: int
    is_over: bool
    is_given_up: bool

    @property
    def is_blocked(self) -> bool:
        """The reader is behind."""
        ...

    @property
    def num_prompt_left(self) -> int:
        """Prompt tokens to run before the next result; 0 while decoding."""
        ...

    @property
    def state(self) -> SequenceState: ...

    @property
    def target_taps(self) -> tuple[int, ...]:
        """Layers whose output :meth:`accept` needs."""
        ...

    def start(self) -> None:
        """Take memory, unless it has been done; called before anything below."""
        ...

    def open_rows(self, num_prompt_rows: int) -> OpenRows:
        """Choose rows and open them in the state: so many of the prompt, or those of a step if 0.

        Before a step's rows, :meth:`want_draft` has been asked and what it wanted has been made.
        """
        ...

    def accept(self, logits: Tensor, taps: Tensor, times: StepTimes) -> int | NDArray[np.int64]:
        """Take in what the forward gave for the rows; returns which are kept, as ``commit_rows`` takes it."""
        ...

    def end_cancelled(self) -> None:
        """End with what a cancelled request ends with."""
        ...

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        ...
