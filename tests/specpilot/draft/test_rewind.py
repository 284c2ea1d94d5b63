"""A drafter that is rewound is as if nothing had been added or proposed since the mark."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import Draft, Drafter, DrafterState
from specpilot.draft.suffix_index import SuffixIndex
from specpilot.errors import EngineError
from specpilot.refengine.model import TargetModel
from tests.specpilot.refengine.random_target import SMALL, random_tensors
from tests.specpilot.refengine.test_tree_steps import DRAFTERS, drafter_of

PERIOD = [5, 6, 7, 5, 6, 8, 5, 6, 7]


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return TargetModel(SMALL, random_tensors(SMALL), "judge")


def add(drafter: Drafter, state: DrafterState, token_ids: list[int], seed: int) -> None:
    width = len(drafter.target_taps) * SMALL.hidden_size
    taps = torch.randn(len(token_ids), width, generator=torch.Generator().manual_seed(seed))
    drafter.append_context(state, torch.tensor(token_ids), taps)


def assert_same(one: Draft, other: Draft) -> None:
    assert torch.equal(one.token_ids, other.token_ids)
    assert torch.equal(one.lattice.candidate_ids, other.lattice.candidate_ids)
    assert torch.equal(one.lattice.edge_scores, other.lattice.edge_scores)


@pytest.mark.parametrize("num_tokens", [1, 9])
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_rewound_context_is_the_one_before(target: TargetModel, name: str, num_tokens: int) -> None:
    drafter = drafter_of(name, target)
    rewound, straight = drafter.new_state(60), drafter.new_state(60)
    for state in (rewound, straight):
        add(drafter, state, PERIOD[:num_tokens], 1)
        drafter.propose(state, 5)
    for round_number in range(3):
        mark = drafter.mark(rewound)
        add(drafter, rewound, [5, 6, 8, 5, 6], 10 + round_number)
        drafter.propose(rewound, 7, num_positions=3)
        add(drafter, rewound, [7, 5], 20)
        drafter.propose(rewound, 6)
        drafter.rewind(rewound, mark)
        assert rewound.num_tokens == straight.num_tokens
        for state in (rewound, straight):
            add(drafter, state, [5, 6, 7], 30 + round_number)
        assert_same(drafter.propose(rewound, 5), drafter.propose(straight, 5))


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_mark_may_be_used_twice(target: TargetModel, name: str) -> None:
    drafter = drafter_of(name, target)
    state = drafter.new_state(60)
    add(drafter, state, PERIOD, 1)
    mark = drafter.mark(state)
    drafts = []
    for _ in range(2):
        add(drafter, state, [5, 6], 2)
        drafts.append(drafter.propose(state, 7))
        drafter.rewind(state, mark)
    assert_same(*drafts)


@pytest.mark.parametrize("name", DRAFTERS)
def test_what_is_no_mark_of_the_past_is_refused(target: TargetModel, name: str) -> None:
    drafter = drafter_of(name, target)
    state = drafter.new_state(60)
    add(drafter, state, PERIOD, 1)
    mark = drafter.mark(state)
    add(drafter, state, [5, 6], 2)
    later = drafter.mark(state)
    drafter.rewind(state, mark)
    for wrong in (later, None, "mark"):
        with pytest.raises(EngineError, match="mark"):
            drafter.rewind(state, wrong)


@given(
    text=st.lists(st.integers(0, 3), max_size=40),
    more=st.lists(st.integers(0, 3), max_size=40),
    ngram=st.integers(1, 3),
)
def test_a_cut_index_is_the_index_of_the_shorter_text(text: list[int], more: list[int], ngram: int) -> None:
    """In every word of its memory that can be seen: probing tables do not like deletions."""

    def index_of(tokens: list[int]) -> SuffixIndex:
        index = SuffixIndex(80, ngram=ngram, max_match=8, max_places=64, max_ends=8)
        for token in tokens:
            index.append(token)
        return index

    cut, fresh = index_of(text + more), index_of(text)
    cut.cut(len(text))
    assert cut.num_tokens == fresh.num_tokens and cut._last == fresh._last
    assert cut._before[: len(text) + 1] == fresh._before[: len(text) + 1]
    for last in range(4):
        assert cut.find(last) == fresh.find(last)
    for token in more:
        cut.append(token)
        fresh.append(token)
    assert all(cut.find(last) == fresh.find(last) for last in range(4))


def test_an_index_is_not_cut_to_more_than_it_has() -> None:
    index = SuffixIndex(8, ngram=2, max_match=4, max_places=8, max_ends=8)
    for wrong in (1, -1):
        with pytest.raises(ValueError, match="cut"):
            index.cut(wrong)
