"""Where the last tokens of a text have stood before: an exact index of n-grams that grows with the text.

Places of equal n-grams hang in chains, most recent first, found through a hash table with open addressing. An append
costs one look-up, whatever the text; nothing is rebuilt.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

__all__ = ["Match", "SuffixIndex"]

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, odd: spreads the products over the upper bits


@dataclass(frozen=True)
class Match:
    """Earlier places of the longest suffix that has stood before.

    Attributes
    ----------
    length
        Tokens that agree, at most ``max_match``.
    ends
        Places behind them, most recent first: the text goes on at ``tokens[end]``, where the place of the last token
        itself, ``num_tokens``, is allowed.
    """

    length: int
    ends: tuple[int, ...]


class SuffixIndex:
    """Tokens of one text and where their n-grams end.

    Parameters
    ----------
    max_tokens
        Room, allocated at once: 4 bytes a token for the text, 4 for the chains, 8 to 16 for the table.
    ngram
        Shortest suffix that counts as a match.
    max_match
        Longest suffix looked at.
    max_places, max_ends
        Of the last ``ngram`` tokens' places the most recent ``max_places`` are looked at; at most ``max_ends`` of the
        longest match come back.
    """

    def __init__(
        self, max_tokens: int, *, ngram: int, max_match: int, max_places: int, max_ends: int
    ) -> None:
        if not 1 <= ngram <= max_match:
            raise ValueError(f"ngram: got {ngram}, expected 1 to max_match, {max_match}")
        self.max_tokens, self.num_tokens = max_tokens, 0
        self._ngram, self._max_match = ngram, max_match
        self._max_places, self._max_ends = max_places, max_ends
        bits = max(1, (2 * max_tokens - 1).bit_length())
        self._shift, self._mask = 64 - bits, 2**bits - 1
        # 0 ends a chain and marks a free slot: no n-gram ends at place 0.
        self._tokens, self._before = array("i", bytes(4 * max_tokens)), array("i", bytes(4 * max_tokens + 4))
        self._last = array("i", bytes(4 << bits))

    @property
    def memory_bytes(self) -> int:
        return sum(part.itemsize * len(part) for part in (self._tokens, self._before, self._last))

    def token(self, place: int) -> int:
        """The token at ``place`` < ``num_tokens``."""
        return self._tokens[place]

    def append(self, token_id: int) -> None:
        """Add the next token of the text."""
        if self.num_tokens == self.max_tokens:
            raise ValueError(
                f"index: got token {self.num_tokens + 1}, expected at most {self.max_tokens}; "
                "make it with a larger max_tokens"
            )
        self._tokens[self.num_tokens] = token_id
        self.num_tokens = end = self.num_tokens + 1
        if end >= self._ngram:
            slot = self._slot(self._tokens[end - self._ngram : end])
            self._before[end] = self._last[slot]
            self._last[slot] = end

    def cut(self, num_tokens: int) -> None:
        """Forget all but the first ``num_tokens``; the index is then as it was when it had so many."""
        if not 0 <= num_tokens <= self.num_tokens:
            raise ValueError(f"index: got a cut to {num_tokens} tokens, expected 0 to {self.num_tokens}")
        # Backwards: a slot is then only freed after those of the grams that came later and probed past it.
        for end in range(self.num_tokens, num_tokens, -1):
            if end >= self._ngram:
                self._last[self._slot(self._tokens[end - self._ngram : end])] = self._before[end]
        self.num_tokens = num_tokens

    def find(self, last_id: int) -> Match | None:
        """Where the longest suffix of the text and ``last_id`` behind it has stood before; None without a match."""
        num_before = min(self.num_tokens, self._max_match - 1)
        if num_before + 1 < self._ngram:
            return None
        tokens = self._tokens
        suffix = tokens[self.num_tokens - num_before : self.num_tokens]
        suffix.append(last_id)
        end = self._last[self._slot(suffix[-self._ngram :])]
        ends: list[int] = []
        length, tail = self._ngram, suffix[-self._ngram :]
        for _ in range(self._max_places):
            if not end:
                break
            if end >= length and tokens[end - length : end] == tail:
                limit, longest = min(len(suffix), end), length
                while longest < limit and tokens[end - longest - 1] == suffix[-longest - 1]:
                    longest += 1
                if longest > length:
                    length, ends, tail = longest, [], suffix[-longest:]
                ends.append(end)
            end = self._before[end]
        return Match(length, tuple(ends[: self._max_ends])) if ends else None

    def _slot(self, gram: array[int]) -> int:
        """The gram's slot in the table, or the free one where it belongs."""
        mixed = 0
        for token_id in gram:
            mixed = ((mixed ^ token_id) * _GOLDEN) & _WORD
        slot = mixed >> self._shift
        while (end := self._last[slot]) and self._tokens[end - self._ngram : end] != gram:
            slot = (slot + 1) & self._mask
        return slot
