"""Turns token bytes into text that is safe to send: no half characters, no beginning of a stop string."""

from __future__ import annotations

import codecs

__all__ = ["TextStream"]


class TextStream:
    """Feeds on token bytes, gives out final text.

    ``is_stopped`` becomes true when a stop string has been completed; the text before it has been given out by then and
    everything after it is dropped.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.is_stopped = False

    def feed(self, data: bytes) -> str:
        """Text that became final with these bytes."""
        if self.is_stopped:
            return ""
        return self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """What is left at the end of the answer: held-back text and a replacement sign for an unfinished character."""
        if self.is_stopped:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + ("" if self.is_stopped else held)

    def _release(self, text: str) -> str:
        buffer = self._held + text
        found = [place for place in (buffer.find(stop) for stop in self._stop) if place >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return buffer[: min(found)]
        keep = max((self._overlap(buffer, stop) for stop in self._stop), default=0)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep]

    @staticmethod
    def _overlap(buffer: str, stop: str) -> int:
        """Length of the longest end of ``buffer`` with which ``stop`` begins."""
        for size in range(min(len(stop) - 1, len(buffer)), 0, -1):
            if buffer.endswith(stop[:size]):
                return size
        return 0
