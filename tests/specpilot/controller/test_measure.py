"""A pass: what is asked before the clock runs says nothing of what is asked while it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from specpilot.controller.clock import SystemClock
from specpilot.controller.measure import NUM_WARM_UP_TOKENS, run_pass, warm_up_prompts
from specpilot.controller.slots.base import Piece
from specpilot.requests.sets import Prompt

PROMPTS = [Prompt(f"p/{n}", "b", 1, tuple(range(100 * n, 100 * n + 10 + n))) for n in range(6)]


class Recording:
    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], int]] = []

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Piece]:
        self.asked.append((tuple(prompt_ids), max_new_tokens))
        yield Piece((1,), "stop")


@pytest.mark.parametrize("batch_size", [1, 4, 9])
def test_no_timed_prompt_can_be_told_from_the_warm_up(batch_size: int) -> None:
    endpoint = Recording()
    run_pass(endpoint, PROMPTS, batch_size, 99, SystemClock())
    warm_up = [ids for ids, most in endpoint.asked if most == NUM_WARM_UP_TOKENS]
    assert len(warm_up) == max(2, batch_size)
    assert {most for _, most in endpoint.asked[: len(warm_up)]} == {NUM_WARM_UP_TOKENS}
    for ids in warm_up:
        assert all(sorted(ids) != sorted(one.prompt_ids) for one in PROMPTS)
        # Nor does it begin or end as one does, in which a system that keeps prefixes would gain.
        assert all(ids[:2] != one.prompt_ids[:2] and ids[::-1][:2] != one.prompt_ids[:2] for one in PROMPTS)


def test_the_warm_up_is_the_same_for_any_order() -> None:
    assert warm_up_prompts(PROMPTS, 3) == warm_up_prompts(PROMPTS[::-1], 3)


def test_prompts_of_one_token_are_avoided_too() -> None:
    prompts = [Prompt(f"p/{n}", "b", 1, (n,)) for n in range(3)]
    assert not {one.prompt_ids for one in warm_up_prompts(prompts, 5)} & {one.prompt_ids for one in prompts}
