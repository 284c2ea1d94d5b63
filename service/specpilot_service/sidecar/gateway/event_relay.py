"""Events of a stream on their way through: cut at event borders, counted, otherwise untouched.

The bytes are not parsed. Only whole events are passed on, so a stream that breaks in the middle of one ends with an
error frame and not with half a JSON object. The comment in which the embedded engine reports a stream's usage is taken
out: a client sees usage only if it asked for it itself.
"""

from __future__ import annotations

import json
from typing import Any

from specpilot_service.streaming import USAGE_COMMENT

__all__ = ["EventRelay", "TokenUsage", "read_usage"]

_USAGE_MARK = b'"usage":{'
# At the end of whole events: inside an event these words are followed by the end of a JSON object.
_DONE = b"data: [DONE]\n\n"
_ERROR_MARKS = (b'"error":{', b'"error": {')


class TokenUsage:
    """Tokens of one answer; ``is_reported`` is False when the engine did not say, and then counts are zero."""

    def __init__(self) -> None:
        self.is_reported = False
        self.prompt_tokens = self.completion_tokens = 0

    def take(self, report: Any) -> None:
        if not isinstance(report, dict):
            return
        prompt, completion = report.get("prompt_tokens"), report.get("completion_tokens")
        if isinstance(prompt, int) and isinstance(completion, int):
            self.prompt_tokens, self.completion_tokens, self.is_reported = prompt, completion, True


class EventRelay:
    """``feed`` gives what may go to the client now.

    Attributes
    ----------
    num_events
        Events passed on, ``[DONE]`` and comments included.
    is_done
        What was fed last ended with ``[DONE]``.
    has_error
        What was fed last carried an ``error`` object: the engine has told the client itself.
    """

    def __init__(self) -> None:
        self.num_events = 0
        self.is_done = False
        self.has_error = False
        self.usage = TokenUsage()
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._rest = data
            return b""
        if end == len(data):
            self._rest = b""
        else:
            data, self._rest = data[:end], data[end:]
        self.num_events += data.count(b"\n\n")
        # These words stand in no text of an answer: inside a JSON string their quotes would be escaped.
        if _USAGE_MARK in data or USAGE_COMMENT in data:
            data = self._take_usage(data)
        self.is_done = data.endswith(_DONE)
        self.has_error = any(mark in data for mark in _ERROR_MARKS)
        return data

    def _take_usage(self, data: bytes) -> bytes:
        kept = []
        for event in data.split(b"\n\n"):
            if event.startswith(USAGE_COMMENT):
                self.usage.take(_parse(event[len(USAGE_COMMENT) :]))
                self.num_events -= 1
                continue
            kept.append(event)
            if _USAGE_MARK in event and event.startswith(b"data: "):
                self.usage.take(read_usage(event[len(b"data: ") :]))
        return b"\n\n".join(kept)


def read_usage(body: bytes) -> Any:
    """The ``usage`` object of a JSON body, None without one."""
    parsed = _parse(body)
    return parsed.get("usage") if isinstance(parsed, dict) else None


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
