"""Reads a stream of server-sent events strictly."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_events"]


def parse_events(body: bytes) -> tuple[list[dict[str, Any]], bool]:
    """JSON objects of all frames, each whole UTF-8, and whether ``[DONE]`` closed the stream."""
    assert body.endswith(b"\n\n")
    frames = body.removesuffix(b"\n\n").split(b"\n\n")
    events = []
    for frame in frames:
        assert frame.startswith(b"data: ") and b"\n" not in frame
        events.append(frame.removeprefix(b"data: ").decode("utf-8", "strict"))
    is_done = events[-1] == "[DONE]"
    assert "[DONE]" not in events[:-1]
    return [json.loads(event) for event in (events[:-1] if is_done else events)], is_done
