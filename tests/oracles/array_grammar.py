"""Six tokens that spell JSON arrays of ones and twos, and their grammar by regular expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence

SYMBOLS = (b"[", b"]", b"1", b"2", b",", b"")
END = 5
SCHEMA = '{"type": "array", "items": {"enum": [1, 2]}}'

_WHOLE = re.compile(r"\[([12](,[12])*)?\]")
_BEGINNING = re.compile(r"\[?|\[[12](,[12])*,?|" + _WHOLE.pattern)


class ArrayTokenizer:
    """A ``GrammarTokenizer``; the last token is end-of-text."""

    vocab_size = len(SYMBOLS)

    def token_bytes(self, token_id: int) -> bytes:
        return SYMBOLS[token_id]

    def encode(self, text: str) -> list[int]:
        return [SYMBOLS.index(character.encode()) for character in text]


def allowed_ids(said: Sequence[int]) -> set[int]:
    """What may follow tokens of a valid beginning; after end-of-text anything, as nobody reads it."""
    if END in said:
        return set(range(len(SYMBOLS)))
    text = b"".join(SYMBOLS[token] for token in said).decode()
    allowed = {token for token in range(END) if _BEGINNING.fullmatch(text + SYMBOLS[token].decode())}
    return allowed | ({END} if _WHOLE.fullmatch(text) else set())
