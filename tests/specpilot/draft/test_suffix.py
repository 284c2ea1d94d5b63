"""What the suffix drafter proposes: a readable reference, when it stays silent, and the law of sampled answers."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpilot.draft import Drafter, SuffixDrafter
from specpilot.draft.suffix_length import AcceptEstimate, best_length
from specpilot.errors import EngineError
from specpilot.verify import acceptance_probs, bonus_law, verify_sampled
from tests.oracles.statistics import chi_square_p_value

NGRAM, MAX_MATCH, MAX_PLACES, MAX_ENDS = 2, 32, 64, 8


def committed(drafter: SuffixDrafter, text: list[int]):
    state = drafter.new_state(len(text) + 64)
    drafter.append_context(state, torch.tensor(text, dtype=torch.int64), torch.empty(len(text), 0))
    return state


def proposal(text: list[int], num_positions: int | None = None, **options) -> list[int]:
    """Draft after ``text``, whose last token is the anchor; the whole chain unless a row costs something."""
    drafter = SuffixDrafter(**{"row_cost": 0.0, **options})
    draft = drafter.propose(committed(drafter, text[:-1]), text[-1], num_positions=num_positions)
    return draft.token_ids.tolist()


def reference(text: list[int], num_positions: int) -> list[int]:
    """Search the longest suffix of ``text`` that has stood before, then vote token by token."""

    def agreement(end: int) -> int:
        longest = min(end, len(text), MAX_MATCH)
        return max(n for n in range(NGRAM, longest + 1) if text[end - n : end] == text[-n:])

    ends = [end for end in range(len(text) - 1, NGRAM - 1, -1) if text[end - NGRAM : end] == text[-NGRAM:]]
    ends = ends[:MAX_PLACES]
    if not ends:
        return []
    best = max(map(agreement, ends))
    ends = [end for end in ends if agreement(end) == best][:MAX_ENDS]
    written = list(text)
    for depth in range(num_positions):
        votes = Counter(written[end + depth] for end in ends)
        winner = next(
            written[end + depth] for end in ends if votes[written[end + depth]] == max(votes.values())
        )
        written.append(winner)
        ends = [end for end in ends if written[end + depth] == winner]
    return written[len(text) :]


@settings(max_examples=400, deadline=None)
@given(
    text=st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), min_size=1, max_size=70)),
    num_positions=st.integers(1, 15),
)
def test_the_chain_is_that_of_the_reference(text: list[int], num_positions: int) -> None:
    assert proposal(text, num_positions) == reference(text, num_positions)


@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    steps=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=8),
)
def test_a_priced_draft_is_the_beginning_of_the_free_one_whatever_was_learned(
    text: list[int], steps: list[list[int]]
) -> None:
    drafter = SuffixDrafter()
    state, anchor = committed(drafter, text[:-1]), text[-1]
    for step in steps:
        draft = drafter.propose(state, anchor).token_ids.tolist()
        assert draft == reference(text, 7)[: len(draft)]
        drafter.append_context(state, torch.tensor([anchor, *step[:-1]]), torch.empty(len(step), 0))
        anchor = step[-1]
        text = [*text, *step]
    assert state.num_tokens == len(text) - 1


def test_it_is_a_drafter() -> None:
    drafter = SuffixDrafter()
    assert isinstance(drafter, Drafter)
    assert (drafter.name, drafter.target_taps, drafter.memory_bytes) == ("suffix", (), 0)
    assert drafter.new_state(100).memory_bytes == 4 * (100 + 101 + 256)


def test_the_longest_match_wins_over_recent_and_frequent_shorter_ones() -> None:
    text = [1, 2, 3, 4, 50, 9, 3, 4, 60, 8, 3, 4, 60, 7, 1, 2, 3, 4]
    assert proposal(text, 1) == [50]


def test_among_equal_matches_the_frequent_wins_then_the_recent() -> None:
    assert proposal([3, 4, 50, 1, 3, 4, 50, 2, 3, 4, 60, 7, 3, 4], 1) == [50]
    assert proposal([3, 4, 50, 7, 3, 4, 60, 8, 3, 4], 1) == [60]


def test_a_period_is_drafted_beyond_the_end_of_the_text() -> None:
    assert proposal([7, 8, 9, 7, 8], 7) == [9, 7, 8, 9, 7, 8, 9]
    assert proposal([5, 5, 5], 7) == [5] * 7


def test_without_a_match_nothing_is_drafted() -> None:
    drafter = SuffixDrafter()
    for text in ([1], [1, 2], [1, 2, 3, 4, 5, 6]):
        for temperature in (0.0, 0.7):
            draft = drafter.propose(committed(drafter, text[:-1]), text[-1], temperature=temperature)
            assert draft.token_ids.shape == (0,) and draft.token_ids.dtype == torch.int64
            assert draft.lattice.depth == 0


def test_matches_that_do_not_help_are_no_longer_drafted_and_helpful_ones_again() -> None:
    """First every pair is followed by something else each time, then the text repeats itself."""
    drafter = SuffixDrafter()
    state = drafter.new_state(2_000)
    nothing = torch.empty(1, 0)
    lengths = []

    def advance(token_id: int) -> None:
        lengths.append(len(drafter.propose(state, token_id).token_ids))
        drafter.append_context(state, torch.tensor([token_id]), nothing)

    for index in range(60):
        for token_id in (1, 2, 1_000 + index):
            advance(token_id)
    assert sum(lengths[:30]) > 0 and sum(lengths[-30:]) == 0
    for token_id in list(range(100, 140)) * 3:
        advance(token_id)
    assert lengths[-1] == 7


def test_a_draft_is_not_charged_for_tokens_that_were_never_verified() -> None:
    """Seven drafts, two committed tokens that agree: nothing is known of the other five."""
    drafter = SuffixDrafter()
    state = committed(drafter, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 2 + [1, 2])
    before = state.estimate.rate(16, 1.0)
    drafter.propose(state, 3)
    drafter.append_context(state, torch.tensor([3, 4]), torch.empty(2, 0))
    drafter.propose(state, 5)
    assert state.estimate.rate(16, 1.0) >= before


def test_accept_estimate_counts_each_class_of_length_by_itself() -> None:
    estimate = AcceptEstimate()
    short, long = estimate.rate(2, 1.0), estimate.rate(16, 1.0)
    assert estimate.rate(2, 0.5) == short / 2 < long == estimate.rate(400, 1.0)
    for _ in range(200):
        estimate.learn(2, 1.0, False)
        estimate.learn(3, 0.25, True)
    assert estimate.rate(2, 1.0) < 0.02 and estimate.rate(3, 1.0) == 1.0 and estimate.rate(17, 1.0) == long


@settings(max_examples=200, deadline=None)
@given(rates=st.lists(st.floats(0, 1), max_size=9), row_cost=st.floats(0.0, 1.0))
def test_best_length_is_the_best_of_all_lengths(rates: list[float], row_cost: float) -> None:
    def pays(count: int) -> float:
        committed = 1.0 + sum(
            torch.tensor(rates[:n], dtype=torch.float64).prod().item() for n in range(1, count + 1)
        )
        return committed / (1.0 + row_cost * count)

    got = best_length(rates, row_cost)
    assert pays(got) == pytest.approx(max(pays(count) for count in range(len(rates) + 1)))


def test_misuse_is_refused() -> None:
    drafter = SuffixDrafter()
    state = drafter.new_state(2)
    with pytest.raises(ValueError, match=r"taps: got shape \(1, 4\), expected \(1, 0\)"):
        drafter.append_context(state, torch.tensor([1]), torch.empty(1, 4))
    with pytest.raises(ValueError, match="expected at most 2"):
        drafter.append_context(state, torch.tensor([1, 2, 3]), torch.empty(3, 0))
    with pytest.raises(ValueError, match="num_positions: got 0"):
        drafter.propose(state, 1, num_positions=0)
    with pytest.raises(EngineError, match="expected SuffixState"):
        drafter.propose(object(), 1)  # type: ignore[arg-type]
    for wrong in ({"block_size": 1}, {"row_cost": -1.0}, {"row_cost": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SuffixDrafter(**wrong)


# The law of sampled answers. A target on six tokens whose law depends on the last two.

VOCAB, LENGTH = 6, 5
PROMPT = [0, 1, 2, 0, 1]


def target_laws(seed: int) -> Tensor:
    logits = torch.randn(
        VOCAB, VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return torch.softmax(1.5 * logits, -1)


def p_row(laws: Tensor, text: tuple[int, ...]) -> Tensor:
    return laws[text[-2], text[-1]]


def emitted_law(laws: Tensor, *, q: float = 1.0, is_draft_kept: bool = False) -> Tensor:
    """Law of the first LENGTH tokens, every step speculative: sums over acceptances and bonus tokens.

    ``q`` is the probability the drafted token is claimed to have; ``is_draft_kept`` leaves the draft's mass in the
    bonus law. Both are 1 and False in the product.
    """
    drafter = SuffixDrafter(block_size=4, row_cost=0.0)
    law = torch.zeros((VOCAB,) * LENGTH, dtype=torch.float64)

    def go_on(text: tuple[int, ...], reached: float) -> None:
        if len(text) >= len(PROMPT) + LENGTH:
            law[text[len(PROMPT) : len(PROMPT) + LENGTH]] += reached
            return
        draft = drafter.propose(committed(drafter, list(text[:-1])), text[-1], temperature=1.0)
        ids = draft.token_ids
        p_rows = torch.stack([p_row(laws, (*text, *ids[:n].tolist())) for n in range(len(ids) + 1)])
        assert draft.q_rows is not None
        q_rows, candidates = draft.q_rows * q, draft.lattice.candidate_ids
        accept = acceptance_probs(ids, candidates, q_rows, p_rows).tolist()
        for count in range(len(ids) + 1):
            stops = reached * (1.0 - accept[count] if count < len(ids) else 1.0)
            bonus = p_rows[count] if is_draft_kept else bonus_law(count, candidates, q_rows, p_rows)
            for token_id, share in enumerate(bonus.tolist()):
                if stops * share > 0.0:
                    go_on((*text, *ids[:count].tolist(), token_id), stops * share)
            reached *= accept[count] if count < len(ids) else 0.0

    go_on(tuple(PROMPT), 1.0)
    return law


def plain_law(laws: Tensor) -> Tensor:
    law = torch.zeros((VOCAB,) * LENGTH, dtype=torch.float64)
    for tokens in itertools.product(range(VOCAB), repeat=LENGTH):
        text, share = tuple(PROMPT), 1.0
        for token_id in tokens:
            share *= float(p_row(laws, text)[token_id])
            text = (*text, token_id)
        law[tokens] = share
    return law


def test_sampled_answers_keep_the_law_exactly() -> None:
    laws = target_laws(0)
    assert float((emitted_law(laws) - plain_law(laws)).abs().sum()) < 1e-12


@pytest.mark.parametrize("wrong", [{"q": 0.5}, {"is_draft_kept": True}])
def test_control_a_wrong_law_of_the_draft_shows(wrong) -> None:
    laws = target_laws(0)
    assert float((emitted_law(laws, **wrong) - plain_law(laws)).abs().sum()) > 0.01


def first_token_counts(p_rows: Tensor, *, is_always_kept: bool = False) -> Tensor:
    """What 6,000 verify steps of one drafted token commit first."""
    drafter = SuffixDrafter(block_size=2, row_cost=0.0)
    draft = drafter.propose(committed(drafter, [7, 8, 9, 7]), 8, temperature=1.0)
    generator, counts = torch.Generator().manual_seed(11), torch.zeros(p_rows.shape[1])
    assert draft.q_rows is not None and draft.token_ids.tolist() == [9]
    for _ in range(6_000):
        result = verify_sampled(draft.token_ids, draft.lattice.candidate_ids, draft.q_rows, p_rows, generator)
        is_kept = is_always_kept or result.num_correct_drafts
        counts[9 if is_kept else result.bonus_id] += 1
    return counts


def test_first_token_on_500_tokens_passes_chi_square_and_a_kept_draft_does_not() -> None:
    """Level 0.001, fixed seed; the control keeps every draft."""
    logits = torch.randn(2, 500, generator=torch.Generator().manual_seed(5))
    logits[:, 9] += 4.0
    p_rows = torch.softmax(logits, -1)
    assert chi_square_p_value(first_token_counts(p_rows), p_rows[0]) > 0.001
    assert chi_square_p_value(first_token_counts(p_rows, is_always_kept=True), p_rows[0]) < 1e-6
