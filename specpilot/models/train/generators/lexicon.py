"""Words and sentence fragments of the standard library's own documentation strings, for subjects and identifiers."""

from __future__ import annotations

import keyword
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

__all__ = ["Lexicon", "identifier", "lexicon"]

_DOCSTRING: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
_SENTENCE: Final = re.compile(r"[A-Z][a-z]+(?: [a-z]+,?){6,24}\.")
_SKIPPED: Final = ("test", "tests", "site-packages", "dist-packages", "lib2to3", "idlelib", "encodings")
_NOUN: Final = re.compile(
    r"\b(?:the|a|an|each|this|its) ([a-z]{3,14})(?= (?:is|of|in|are|was|for|to|from|that)\b|[.,])"
)
_VERB: Final = re.compile(r"\b(?:to|can|will|should) ([a-z]{3,12}) (?:the|a|an|this|all)\b")
_ADJECTIVE: Final = re.compile(
    r"\b(?:the|a|an) ([a-z]{3,12}(?:ive|al|able|ful|ous|ic|ed|ent|ary|ar|ry|rt|ng|ew)) (?=[a-z]{3,})"
)
_MIN_WORDS: Final = 2000


@dataclass(frozen=True)
class Lexicon:
    """Sorted word lists and whole sentences."""

    words: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]
    sentences: tuple[str, ...]


@cache
def lexicon() -> Lexicon:
    """Read the running interpreter's standard library once."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(root.rglob("*.py")):
        if not set(path.relative_to(root).parts[:-1]).intersection(_SKIPPED):
            texts += _DOCSTRING.findall(path.read_text(encoding="utf-8", errors="ignore"))
    text = " ".join(" ".join(texts).split())
    counts = Counter(re.findall(r"(?<![\w.'_])[a-z]{3,11}(?![\w.'_(])", text))
    words = sorted(w for w, n in counts.items() if n >= 4 and not keyword.iskeyword(w))
    assert len(words) >= _MIN_WORDS, len(words)
    known = set(words)

    def common(pattern: re.Pattern[str]) -> tuple[str, ...]:
        found = Counter(pattern.findall(text))
        return tuple(sorted(w for w, n in found.items() if n >= 2 and w in known))

    sentences = tuple(sorted({s for s in _SENTENCE.findall(text) if len(s) < 140}))
    return Lexicon(tuple(words), common(_NOUN), common(_VERB), common(_ADJECTIVE), sentences)


def identifier(rng: Random, length: int | None = None) -> str:
    """A snake_case name of one to three words of the lexicon."""
    parts = length or rng.choice((2, 2, 3))
    return "_".join(rng.choice(lexicon().words) for _ in range(parts))
