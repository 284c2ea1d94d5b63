"""Calls that run beside the caller, every kind of work on a thread of its own.

Reading, hashing, writing and the codec all run without Python's lock, so those of one piece of a file overlap with
those of the next ones. What is under way is bounded in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

__all__ = ["MOST_BYTES", "Lanes"]

MOST_BYTES = 2**26
"""Of pieces under way at once; a larger one is under way alone."""

_Result = TypeVar("_Result")


@dataclass
class _Piece:
    num_bytes: int
    calls: list[Future[object]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)


class Lanes:
    """Threads, begun when there is a call for them. Calls of one lane run one after the other, in their order.

    A context manager: on an error, an interrupt too, calls that have not begun are dropped and those that run are
    waited for, so nothing is at work on a file when it is closed. For one caller's thread.
    """

    def __init__(self) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._pieces: deque[_Piece] = deque()
        self._num_bytes = 0

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what has not begun; wait for what has."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads.values():
            thread.shutdown()
        self._threads.clear()
        self._pieces.clear()
        self._num_bytes = 0

    def begin(self, num_bytes: int) -> None:
        """Begin a piece that takes so many bytes until its calls are done; wait while there is no room for it.

        Raises
        ------
        Exception
            What a call of an earlier piece raised.
        """
        while self._pieces and self._num_bytes + num_bytes > MOST_BYTES:
            self._end_oldest()
        self._pieces.append(_Piece(num_bytes))
        self._num_bytes += num_bytes

    def call(self, lane: str, function: Callable[..., object], *arguments: object) -> None:
        """Call a function for the piece begun last; what it raises is raised by a later :meth:`begin`, or by
        :meth:`finish`."""
        self._last().calls.append(self._thread(lane).submit(function, *arguments))

    def then(self, function: Callable[[], None]) -> None:
        """Call a function on the caller's thread, in a later :meth:`begin` or :meth:`finish`, when all calls so far
        are done."""
        self._last().after.append(function)

    def finish(self) -> None:
        """Wait for all calls; raises what the first that failed raised."""
        while self._pieces:
            self._end_oldest()

    def ahead(self, lane: str, calls: Iterable[Callable[[], _Result]]) -> Iterator[_Result]:
        """Results of calls in their order, each call made while the caller is at work on the result before."""
        following: Future[_Result] | None = None
        for call in calls:
            current, following = following, self._thread(lane).submit(call)
            if current is not None:
                yield current.result()
        if following is not None:
            yield following.result()

    def _end_oldest(self) -> None:
        piece = self._pieces.popleft()
        self._num_bytes -= piece.num_bytes
        for call in piece.calls:
            call.result()
        for function in piece.after:
            function()

    def _last(self) -> _Piece:
        if not self._pieces:
            self.begin(0)
        return self._pieces[-1]

    def _thread(self, lane: str) -> ThreadPoolExecutor:
        if lane not in self._threads:
            self._threads[lane] = ThreadPoolExecutor(1, thread_name_prefix=f"w12-{lane}")
        return self._threads[lane]
