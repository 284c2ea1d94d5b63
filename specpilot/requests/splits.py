"""Development and sealed requests: who sees what, and how long answers may get.

The rule needs no list and no seed, so that everybody gets the same halves: a benchmark's requests are ordered by the
sha256 of their id; the first half, at most 200, is *development*, all others are *sealed*. It decides who may see which
request, not who could guess one: the text of a public benchmark is public, and only a set of one's own is truly unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal, get_args

from specpilot.errors import ConfigError
from specpilot.requests.reading import BenchRequest

__all__ = ["MAX_DEVELOPMENT", "MAX_NEW_TOKENS", "Split", "select_split"]

Split = Literal["development", "sealed"]

MAX_DEVELOPMENT: Final = 200
MAX_NEW_TOKENS: Final[dict[Split, int]] = {"development": 2048, "sealed": 4096}
"""Where an answer stops: a fault that waits for longer answers than agents see meets the sealed final."""


def select_split(requests: Sequence[BenchRequest], split: Split) -> list[BenchRequest]:
    """The requests of one split, benchmarks in order of name, each in order of its hashes.

    Raises
    ------
    ConfigError
        Two requests of a benchmark share an id, a request names no benchmark, or a benchmark has fewer than two.
    """
    if split not in get_args(Split):
        raise ConfigError(f"split: got {split!r}, expected one of {get_args(Split)}")
    benchmarks: dict[str, dict[str, BenchRequest]] = {}
    for request in requests:
        if not request.benchmark:
            raise ConfigError(f"request {request.id}: got no benchmark, expected a name to group it by")
        group = benchmarks.setdefault(request.benchmark, {})
        if request.id in group:
            raise ConfigError(f"request {request.id}: got the id twice, expected it once")
        group[request.id] = request
    chosen: list[BenchRequest] = []
    for name, group in sorted(benchmarks.items()):
        if len(group) < 2:
            raise ConfigError(f"{name}: got {len(group)} request, expected two or more to split")
        ordered = [group[key] for key in sorted(group, key=_order)]
        cut = min(len(ordered) // 2, MAX_DEVELOPMENT)
        chosen += ordered[:cut] if split == "development" else ordered[cut:]
    return chosen


def _order(request_id: str) -> str:
    return hashlib.sha256(request_id.encode()).hexdigest()
