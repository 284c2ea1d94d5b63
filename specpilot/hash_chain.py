"""Append-only logs whose entries are chained: each hash covers the entry and the hash before it.

An entry that was changed, removed or put between others breaks every later hash. A log that was cut at its end, or
rewritten from some entry on, is consistent in itself: who wants to see that keeps a head hash elsewhere and compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["GENESIS_HASH", "ChainState", "Link", "link_hash", "verify_chain"]

GENESIS_HASH = "0" * 64


@dataclass(frozen=True)
class Link:
    """One entry as it is stored: ``fields`` are all its values but the two hashes, ``seq`` counts from 1."""

    seq: int
    previous_hash: str
    hash: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class ChainState:
    """What a walk over a chain found; with a fault, the intact part before it."""

    num_links: int
    head_hash: str
    first_bad_seq: int | None = None

    @property
    def is_intact(self) -> bool:
        return self.first_bad_seq is None

    @property
    def message(self) -> str:
        if self.first_bad_seq is None:
            return f"{self.num_links} entries, each follows from the one before"
        return (
            f"entry {self.first_bad_seq} does not follow from entry {self.num_links}: one of them was changed"
        )


def link_hash(previous_hash: str, fields: Mapping[str, Any]) -> str:
    """sha256 over the previous hash and the entry's canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(previous_hash.encode() + text.encode()).hexdigest()


def verify_chain(links: Iterable[Link]) -> ChainState:
    """Recompute all hashes, oldest entry first."""
    previous, num_links = GENESIS_HASH, 0
    for link in links:
        is_next = link.seq == num_links + 1 and link.previous_hash == previous
        if not is_next or link.hash != link_hash(previous, link.fields):
            return ChainState(num_links, previous, first_bad_seq=link.seq)
        previous, num_links = link.hash, num_links + 1
    return ChainState(num_links, previous)
