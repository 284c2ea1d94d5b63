"""The index against a brute-force search of the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.draft.suffix_index import Match, SuffixIndex

TEXTS = st.integers(1, 5).flatmap(lambda size: st.lists(st.integers(0, size), max_size=60))
LIMITS = st.fixed_dictionaries(
    {
        "ngram": st.integers(1, 3),
        "max_match": st.integers(3, 9),
        "max_places": st.integers(1, 8),
        "max_ends": st.integers(1, 4),
    }
)


def search(text: list[int], last_id: int, limits: dict[str, int]) -> Match | None:
    """Every place of the shortest suffix, most recent first; then the longest agreement among them."""
    whole, ngram = [*text, last_id], limits["ngram"]
    gram = whole[-ngram:]
    places = [end for end in range(len(text), ngram - 1, -1) if text[end - ngram : end] == gram]
    if len(whole) < ngram or not places[: limits["max_places"]]:
        return None

    def agreement(end: int) -> int:
        longest = min(end, len(whole), limits["max_match"])
        return max(n for n in range(ngram, longest + 1) if text[end - n : end] == whole[-n:])

    looked_at = places[: limits["max_places"]]
    length = max(map(agreement, looked_at))
    ends = [end for end in looked_at if agreement(end) == length]
    return Match(length, tuple(ends[: limits["max_ends"]]))


def make_index(text: list[int], limits: dict[str, int]) -> SuffixIndex:
    index = SuffixIndex(len(text), **limits)
    for token_id in text:
        index.append(token_id)
    return index


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, last_id=st.integers(0, 5), limits=LIMITS)
def test_matches_are_those_of_a_search(text: list[int], last_id: int, limits: dict[str, int]) -> None:
    assert make_index(text, limits).find(last_id) == search(text, last_id, limits)


@settings(max_examples=100, deadline=None)
@given(text=TEXTS.filter(bool), limits=LIMITS)
def test_looking_changes_nothing_and_every_prefix_is_searched_alike(
    text: list[int], limits: dict[str, int]
) -> None:
    index = SuffixIndex(len(text), **limits)
    for place, token_id in enumerate(text):
        assert index.find(token_id) == search(text[:place], token_id, limits) == index.find(token_id)
        index.append(token_id)
        assert (index.num_tokens, index.token(place)) == (place + 1, token_id)


def test_many_distinct_ngrams_fill_the_table_without_mixing_them() -> None:
    """As many different n-grams as there is room for, so that slots collide; ids at the upper end too."""
    text = [(index * index * 7919) % 100_003 + 2**31 - 200_000 for index in range(3_000)]
    limits = {"ngram": 2, "max_match": 8, "max_places": 4, "max_ends": 4}
    index = make_index(text, limits)
    for end in range(2, len(text), 37):
        probe = make_index([*text, text[end - 2]], limits)
        match = probe.find(text[end - 1])
        assert match == search([*text, text[end - 2]], text[end - 1], limits) and match is not None
        assert end in match.ends
    assert index.find(5) is None


def test_memory_is_allocated_at_once_and_reported() -> None:
    index = SuffixIndex(1_000, ngram=2, max_match=32, max_places=64, max_ends=8)
    before = index.memory_bytes
    assert before == 4 * 1_000 + 4 * 1_001 + 4 * 2_048
    for token_id in range(1_000):
        index.append(token_id % 7)
    assert index.memory_bytes == before
    with pytest.raises(ValueError, match="token 1001, expected at most 1000"):
        index.append(1)


def test_a_shortest_match_longer_than_the_longest_is_refused() -> None:
    with pytest.raises(ValueError, match="ngram: got 9, expected 1 to max_match, 8"):
        SuffixIndex(10, ngram=9, max_match=8, max_places=1, max_ends=1)
