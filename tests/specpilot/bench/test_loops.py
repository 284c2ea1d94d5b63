"""Where an answer starts to repeat itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.bench.loops import LOOP_NGRAM, find_loop_start


@pytest.mark.parametrize(
    ("ids", "ngram", "expected"),
    [
        ([], 2, None),
        ([1], 2, None),
        ([1, 2, 1], 2, None),
        ([1, 2, 1, 2], 2, 2),
        ([1, 2, 3, 1, 2, 4], 2, 3),
        ([7, 7], 2, None),
        ([7, 7, 7], 2, 1),
        ([1, 2, 3, 4, 2, 3, 4, 2, 3, 4], 3, 4),
        ([5, 5], 1, 1),
    ],
)
def test_hand_made_answers(ids: list[int], ngram: int, expected: int | None) -> None:
    assert find_loop_start(ids, ngram) == expected


def test_default_is_a_32_gram() -> None:
    assert find_loop_start([9] * 32) is None
    assert find_loop_start([9] * 33) == 1
    period = list(range(40))
    assert find_loop_start(period + period[:31]) is None
    assert find_loop_start(period + period[:32]) == 40
    assert LOOP_NGRAM == 32


def test_ngram_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="ngram"):
        find_loop_start([1, 2], 0)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_is_the_first_repeated_ngram(ids: list[int], ngram: int) -> None:
    grams = [tuple(ids[i : i + ngram]) for i in range(len(ids) - ngram + 1)]
    repeated = [i for i, gram in enumerate(grams) if gram in grams[:i]]
    assert find_loop_start(ids, ngram) == (repeated[0] if repeated else None)
