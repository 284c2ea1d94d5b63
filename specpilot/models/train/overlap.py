"""Keeps evaluation text out of the training corpus: shared 13-word runs and repeated short prompts are found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from specpilot.errors import ConfigError

__all__ = ["GRAM_WORDS", "OverlapFilter", "normalised_words"]

GRAM_WORDS: Final = 13
# A held-out text shorter than one gram is matched whole, but below this length it says nothing.
_MIN_WHOLE_WORDS: Final = 5
_WORD: Final = re.compile(r"[^\W_]+")
_FIELDS: Final = ("prompt", "turns", "answer")


def normalised_words(text: str) -> list[str]:
    """Lower-case alphanumeric words of a text, punctuation dropped."""
    return _WORD.findall(text.lower())


def _texts(record: dict[str, object]) -> Iterator[str]:
    for field in _FIELDS:
        value = record.get(field)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (part for part in value if isinstance(part, str))


class OverlapFilter:
    """Index of the 13-word grams of held-out texts, read once and never written anywhere."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._grams: set[tuple[str, ...]] = set()
        short: set[str] = set()
        self._short_starts: set[tuple[str, ...]] = set()
        for text in texts:
            words = normalised_words(text)
            if len(words) >= GRAM_WORDS:
                self._grams.update(_grams(words, GRAM_WORDS))
            elif len(words) >= _MIN_WHOLE_WORDS:
                short.add(f" {' '.join(words)} ")
                self._short_starts.add(tuple(words[:_MIN_WHOLE_WORDS]))
        self._short = tuple(sorted(short))

    @classmethod
    def from_files(cls, paths: Iterable[Path]) -> OverlapFilter:
        """Read JSON-lines files with any of the fields ``prompt``, ``turns``, ``answer``."""
        texts: list[str] = []
        for path in paths:
            found = 0
            for line in path.read_text(encoding="utf-8").split("\n"):
                if line.strip():
                    fresh = list(_texts(json.loads(line)))
                    found += len(fresh)
                    texts += fresh
            if not found:
                raise ConfigError(
                    f"{path} has no text in the fields {', '.join(_FIELDS)}; pass a file that has"
                )
        return cls(texts)

    @property
    def num_grams(self) -> int:
        """Number of distinct indexed runs, short texts included."""
        return len(self._grams) + len(self._short)

    def overlaps(self, text: str) -> bool:
        """Whether ``text`` shares a 13-word run with, or contains a short one of, the held-out texts."""
        words = normalised_words(text)
        if not self._grams.isdisjoint(_grams(words, GRAM_WORDS)):
            return True
        if self._short_starts.isdisjoint(_grams(words, _MIN_WHOLE_WORDS)):
            return False
        joined = f" {' '.join(words)} "
        return any(run in joined for run in self._short)


def _grams(words: list[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(size)), strict=False)
