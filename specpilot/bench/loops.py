"""Where an answer starts to repeat itself: a loop is easy to draft and says nothing about a drafter."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["LOOP_NGRAM", "find_loop_start"]

LOOP_NGRAM = 32


def find_loop_start(token_ids: Sequence[int], ngram: int = LOOP_NGRAM) -> int | None:
    """The smallest index where an ``ngram`` starts that has started at an earlier one too; None without one.

    Occurrences may overlap: 33 equal tokens loop from index 1.
    """
    if ngram < 1:
        raise ValueError(f"ngram: got {ngram}, expected at least 1")
    seen: set[tuple[int, ...]] = set()
    for index in range(len(token_ids) - ngram + 1):
        gram = tuple(token_ids[index : index + ngram])
        if gram in seen:
            return index
        seen.add(gram)
    return None
