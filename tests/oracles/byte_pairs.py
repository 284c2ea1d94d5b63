"""Byte-level BPE written out: cut the text, then merge the pair of lowest rank until none is left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import regex

__all__ = ["merge_slowly"]

# GPT-2's published pattern.
_WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def merge_slowly(
    text: str, tokens: Sequence[str], merges: Sequence[str], *, has_single_digits: bool
) -> list[int]:
    """Ids of plain text; every digit a word of its own where asked for."""
    ids = {token: index for index, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = {byte: chr(256 + index) for index, byte in enumerate(b for b in range(256) if b not in shown)}
    found: list[int] = []
    parts = regex.split(r"(\p{N})", text) if has_single_digits else [text]
    for word in (word for part in parts for word in _WORDS.findall(part)):
        symbols = [moved.get(byte, chr(byte)) for byte in word.encode()]
        while pairs := [pair for pair in itertools.pairwise(symbols) if pair in ranks]:
            best = min(pairs, key=lambda pair: ranks[pair])
            at = next(i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) == best)
            symbols[at : at + 2] = ["".join(best)]
        found += [ids[symbol] for symbol in symbols]
    return found
