"""Which rows a step of several requests has: prompt admission and the drafter's block, against their rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specpilot.conformance.case import Case, expect_equal
from specpilot.draft.block_policy import BlockPolicy
from specpilot.engines.mechanisms import BatchMechanisms
from specpilot.refengine.batch_step import plan_step

__all__ = ["cases"]

_PROMPT_ROWS = 8
_WHOLE = 24


@dataclass(frozen=True)
class _Held:
    num_tokens: int


@dataclass(eq=False)
class _Waiting:
    """What the plan of a step looks at of a request."""

    name: int
    num_prompt_left: int
    state: _Held


_Plan = Callable[[Sequence[Any], BatchMechanisms], list[tuple[Any, int]]]


def cases() -> Iterator[Case[Any]]:
    yield Case("prompt admission", "admits every short prompt", _check_plan, plan_step, _admit_all)
    yield Case("drafter block", "confidence is not looked at", _check_policy, BlockPolicy, _NoConfidence)
    yield Case("drafter block", "never a shorter block", _check_policy, BlockPolicy, _OnlyGrows)


def _check_plan(plan: _Plan) -> int:
    """Every mix of four requests: decoding, short, long, half done."""
    batch = BatchMechanisms(whole_prompt_rows=_WHOLE, prompt_rows=_PROMPT_ROWS)
    kinds = ((0, 9), (1, 0), (3, 0), (10, 0), (20, 0), (24, 0), (25, 0), (6, 20), (90, 40))
    count = 0
    for mix in itertools.product(kinds, repeat=4):
        jobs = [_Waiting(name, left, _Held(done)) for name, (left, done) in enumerate(mix)]
        got = {job.name: rows for job, rows in plan(jobs, batch)}
        expect_equal(f"requests (rows left, rows done) {mix}: rows by request", got, _rows_by_rule(jobs))
        count += 1
    return count


def _rows_by_rule(jobs: Sequence[_Waiting]) -> dict[int, int]:
    """Decoding goes on; short prompts that are held back enter whole, shortest first, up to a limit; the rest share."""
    rows = {job.name: 0 for job in jobs if job.num_prompt_left == 0}
    queue = sorted((job for job in jobs if job.num_prompt_left), key=lambda job: job.num_prompt_left)
    shared = _even_shares(queue)
    whole: set[int] = set()
    for job in queue:
        is_held_back = shared[job.name] < job.num_prompt_left
        is_short = job.num_prompt_left + job.state.num_tokens <= _WHOLE
        in_use = sum(other.num_prompt_left for other in queue if other.name in whole)
        if is_held_back and is_short and in_use + job.num_prompt_left <= _WHOLE:
            whole.add(job.name)
    rows |= {job.name: job.num_prompt_left for job in queue if job.name in whole}
    rest = _even_shares([job for job in queue if job.name not in whole])
    return rows | {name: share for name, share in rest.items() if share}


def _even_shares(queue: Sequence[_Waiting]) -> dict[int, int]:
    """The rows dealt evenly; what a short prompt leaves goes to those behind it; of equals the first get more."""
    shares = {job.name: 0 for job in queue}
    left = _PROMPT_ROWS
    for place, job in enumerate(queue):
        # The rows that are left, dealt to those that are left: the first takes the larger part.
        hands = [0] * (len(queue) - place)
        for row in range(left):
            hands[row % len(hands)] += 1
        shares[job.name] = min(hands[0] if hands else 0, job.num_prompt_left)
        left -= shares[job.name]
    return shares


def _admit_all(jobs: Sequence[Any], batch: BatchMechanisms) -> list[tuple[Any, int]]:
    return [
        (job, job.num_prompt_left if job.num_prompt_left + job.state.num_tokens <= _WHOLE else rows)
        for job, rows in plan_step(jobs, batch)
    ]


def _check_policy(policy: type[BlockPolicy]) -> int:
    """Blocks after any history, from the whole history at once."""
    count = 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        one = policy()
        accepted: list[float] = []
        expected: list[float] = []
        level = float(torch.rand((), generator=generator)) * 15
        for step in range(25):
            expect_equal(
                f"step {step} after accepted {accepted}, expected {expected}",
                one.num_rows,
                _block(accepted, expected),
            )
            if step == 12:
                level = float(torch.rand((), generator=generator)) * 15
            drawn = torch.rand(2, generator=generator).tolist()
            accepted.append(float(round(min(15.0, 2 * level * drawn[0]))))
            expected.append(min(15.0, 2 * level * drawn[1]))
            one.learn(int(accepted[-1]), expected[-1])
            count += 1
    return count


def _block(accepted: Sequence[float], expected: Sequence[float]) -> int:
    """8 rows while the forecast fills less than half of their 7 drafts, 12 while less than half of 11, else 16."""
    correct, hoped = _recent_mean(accepted), _recent_mean(expected)
    forecast = expected[-1] * correct / hoped if correct and hoped else 0.0
    return 8 if forecast < 3.5 else 12 if forecast < 5.5 else 16


def _recent_mean(values: Sequence[float]) -> float:
    """The newest weighs 1/4, the one before 1/4 of what is left, and so on; the first has all that is left then."""
    weights = [0.25 * 0.75**age for age in range(len(values) - 1)]
    weights.append(1.0 - sum(weights))
    return (
        sum(weight * value for weight, value in zip(weights, reversed(values), strict=True))
        if values
        else 0.0
    )


class _NoConfidence(BlockPolicy):
    def learn(self, num_correct_drafts: int, num_expected: float) -> None:
        super().learn(num_correct_drafts, num_correct_drafts)


class _OnlyGrows(BlockPolicy):
    def __init__(self) -> None:
        super().__init__()
        self._longest = 0

    @property
    def num_rows(self) -> int:
        self._longest = max(self._longest, super().num_rows)
        return self._longest
