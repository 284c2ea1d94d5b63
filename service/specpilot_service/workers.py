"""Synchronous work of requests in threads, its frames read on the event loop.

A request holds one place from its admission until its thread has ended, so a client that has left still
counts while the engine finishes its step. Which of the admitted requests decodes next is the engine's
decision.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from specpilot.engines.base import CancelToken
from specpilot.errors import Overloaded
from specpilot_service.errors import AnswerCut, ShuttingDown

__all__ = ["FrameSource", "FrameStream", "WorkerPool"]

log = logging.getLogger(__name__)

# Runs in a worker thread; yields the frames of one answer and looks at the token between them.
FrameSource = Callable[[CancelToken], Generator[bytes, None, None]]

# Frames a thread may be ahead of its client. A slow reader costs at most this much memory and never the
# event loop.
_MAX_QUEUED_FRAMES = 256


class FrameStream:
    """Async iterator over the frames of one worker thread; an exception of the thread is raised here.

    ``cancel`` may be called any number of times, also after the end.
    """

    def __init__(self, source: FrameSource, on_end: Callable[[FrameStream], None]) -> None:
        self._source, self._on_end = source, on_end
        self._token = CancelToken()
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._room = threading.Semaphore(_MAX_QUEUED_FRAMES)
        self._has_ended = False

    def __aiter__(self) -> FrameStream:
        return self

    async def __anext__(self) -> bytes:
        if self._has_ended:
            raise StopAsyncIteration
        item = await self._items.get()
        if isinstance(item, bytes):
            self._room.release()
            return item
        self._has_ended = True
        if item is None:
            raise StopAsyncIteration
        raise item

    def cancel(self) -> None:
        self._token.cancel()
        self._room.release()  # wakes a thread that waits for its reader; it then sees the token

    def produce(self) -> None:
        """Body of the worker thread."""
        end: BaseException | None = None
        try:
            with closing(self._source(self._token)) as frames:
                for frame in frames:
                    self._room.acquire()
                    if self._token.is_cancelled:
                        raise AnswerCut  # not a quiet end, which would look like a whole answer
                    self._loop.call_soon_threadsafe(self._items.put_nowait, frame)
        except BaseException as error:
            end = error
        finally:
            self._loop.call_soon_threadsafe(self._end, end)

    def _end(self, error: BaseException | None) -> None:
        self._on_end(self)
        self._items.put_nowait(error)


class WorkerPool:
    """At most ``max_requests`` requests inside; the next one is refused at once, on the event loop.

    All methods belong to the event loop's thread.
    """

    def __init__(self, max_requests: int) -> None:
        self.max_requests = max_requests
        self.is_draining = False
        # Threads are kept: the compute library keeps a team of its own for every thread that calls it.
        self._executor = ThreadPoolExecutor(max_requests, thread_name_prefix="request")
        self._streams: set[FrameStream] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def num_open(self) -> int:
        return len(self._streams)

    def submit(self, source: FrameSource) -> FrameStream:
        """Start the work; raises Overloaded without a free place and ShuttingDown while draining."""
        if self.is_draining:
            raise ShuttingDown("This server is shutting down and takes no new requests.", retry_after_s=5.0)
        if self.num_open >= self.max_requests:
            raise Overloaded(f"All {self.max_requests} places are taken; try again later.", retry_after_s=1.0)
        stream = FrameStream(source, self._release)
        self._streams.add(stream)
        self._is_idle.clear()
        self._executor.submit(stream.produce)
        return stream

    def _release(self, stream: FrameStream) -> None:
        self._streams.remove(stream)
        if not self._streams:
            self._is_idle.set()

    async def drain(self, timeout_s: float, grace_s: float = 5.0) -> bool:
        """Refuse new work, wait for the old, cancel what is left at the timeout. True if nothing was left."""
        self.is_draining = True
        if await self._wait_until_idle(timeout_s):
            return True
        log.warning("drain: cancelling %d requests that still run after %s s", self.num_open, timeout_s)
        for stream in self._streams:
            stream.cancel()
        await self._wait_until_idle(grace_s)
        return False

    async def _wait_until_idle(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_idle.wait()
        except TimeoutError:
            return False
        return True

    def shutdown(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
