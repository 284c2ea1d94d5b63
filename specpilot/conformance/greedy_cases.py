"""Answers by verify steps on the bundled models have the tokens of plain greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import Tensor

from specpilot.conformance.bundled import (
    NUM_TOKENS,
    RunStep,
    bundled_engine,
    decode_steps,
    plain_answer,
    prompts,
)
from specpilot.conformance.case import Case, expect_equal
from specpilot.draft.drafter import Draft
from specpilot.draft.tree import DraftTree
from specpilot.engines.mechanisms import BatchMechanisms, Mechanisms, QWeights
from specpilot.refengine.batch_step import run_step
from specpilot.refengine.jobs import Job, OpenRows
from specpilot.refengine.target import Target
from specpilot.sampling import TokenChooser
from specpilot.verify import TreeWalk

__all__ = ["AcceptsOneMore", "EmitsQTokens", "cases"]

_Chooser = type[TokenChooser]
_WHOLE_PROMPT_ROWS = 384


class AcceptsOneMore(TokenChooser):
    """Accept off by one: the draft behind the last right one is emitted too."""

    def choose(self, logits: Tensor, draft: Draft | None = None) -> list[int]:
        tokens = super().choose(logits, draft)
        if draft is None or len(tokens) > len(draft.token_ids):
            return tokens
        return [*tokens[:-1], int(draft.token_ids[len(tokens) - 1])]

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        walk = super().choose_path(logits, tree)
        wrong = [token for token in tree.children[walk.rows[-1]] if token != walk.token_ids[-1]]
        return TreeWalk(walk.rows, [*walk.token_ids[:-1], wrong[0]]) if wrong else walk


class EmitsQTokens(TokenChooser):
    """The chain of the Q pass is emitted, not what the exact pass says of it."""

    _guessed: TreeWalk | None = None

    def guess_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        self._guessed = super().guess_path(logits, tree)
        return self._guessed

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        walk = super().choose_path(logits, tree)
        if self._guessed is None:
            return walk
        rows = [0]
        for token in self._guessed.token_ids[:-1]:
            if token not in tree.children[rows[-1]]:
                break
            rows.append(tree.children[rows[-1]][token])
        return TreeWalk(rows, self._guessed.token_ids[: len(rows)])


def cases() -> Iterator[Case[Any]]:
    """One case a builder, over all bundled drafters and prompts, and those of the batch."""
    off_by_one = "accept off by one"
    for name, mechanisms in (
        ("chain", Mechanisms()),
        ("best-first", Mechanisms("best_first", 16)),
        ("wide tree", Mechanisms("best_first", 32, 15)),
        ("DDTree", Mechanisms("ddtree", 16)),
        ("EAGLE-2", Mechanisms("eagle2", 16)),
        ("Sequoia", Mechanisms("sequoia", 16)),
    ):
        yield Case(name, off_by_one, _alone(mechanisms), TokenChooser, AcceptsOneMore)
    head = _alone(Mechanisms("best_first", 16, has_certified_head=True))
    yield Case("certified head", off_by_one, head, TokenChooser, AcceptsOneMore)
    for copy in get_args(QWeights):
        yield Case("TLV", f"Q-pass token emitted ({copy})", _two_levels(copy), TokenChooser, EmitsQTokens)
    yield Case(
        "shared budget", off_by_one, _together(BatchMechanisms(node_budget=24)), TokenChooser, AcceptsOneMore
    )
    blocks = BatchMechanisms(has_drafter_blocks=True)
    yield Case("drafter block", off_by_one, _together(blocks), TokenChooser, AcceptsOneMore)
    yield Case(
        "prompt admission",
        "prompt row attributed to another request",
        _check_admission,
        run_step,
        _run_with_foreign_row,
    )


def _drafters() -> list[str]:
    return list(bundled_engine().drafters)


def _alone(mechanisms: Mechanisms) -> Callable[[_Chooser], int]:
    """One request at a time, every drafter that drafts as many positions."""

    def check(chooser: _Chooser) -> int:
        count = 0
        for drafter in _drafters():
            most = bundled_engine().drafters[drafter].max_positions
            asked = mechanisms.num_positions
            mine = replace(mechanisms, num_positions=None if asked is None else min(asked, most))
            for number, ids in enumerate(prompts()):
                (answer,) = decode_steps([ids], drafter, mine, chooser=chooser)
                expect_equal(f"{drafter}, prompt {number}: ids", answer, plain_answer(ids))
                count += NUM_TOKENS
        return count

    return check


def _two_levels(copy: QWeights) -> Callable[[_Chooser], int]:
    """With the copy as it is, and with one whose every logit belongs to the token before."""
    mechanisms = Mechanisms("best_first", 16, q_weights=copy)

    def check(chooser: _Chooser) -> int:
        class Misled(chooser):  # type: ignore[misc, valid-type]
            def guess_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
                walk: TreeWalk = super().guess_path(logits.roll(1, -1), tree)
                return walk

        return _alone(mechanisms)(chooser) + _alone(mechanisms)(Misled)

    return check


def _together(batch: BatchMechanisms) -> Callable[[_Chooser], int]:
    """All requests in every step."""

    def check(chooser: _Chooser) -> int:
        count = 0
        for drafter in _drafters():
            if batch.has_drafter_blocks and bundled_engine().drafters[drafter].max_positions < 15:
                continue
            answers = decode_steps(prompts(), drafter, Mechanisms("best_first"), batch, chooser=chooser)
            for number, (answer, ids) in enumerate(zip(answers, prompts(), strict=True)):
                expect_equal(f"{drafter}, prompt {number} in company: ids", answer, plain_answer(ids))
                count += NUM_TOKENS
        return count

    return check


def _check_admission(run: RunStep) -> int:
    """Prompts that enter a step whole, beside answers that decode already."""
    count = 0
    batch = BatchMechanisms(whole_prompt_rows=_WHOLE_PROMPT_ROWS, prompt_rows=8)
    late = [prompts()[0] * 2, *prompts()]
    for drafter in _drafters()[:2]:
        answers = decode_steps(
            late, drafter, Mechanisms("best_first"), batch, run=run, arrivals=(0, 0, 9, 11)
        )
        for number, (answer, ids) in enumerate(zip(answers, late, strict=True)):
            expect_equal(f"{drafter}, prompt {number}, admitted whole: ids", answer, plain_answer(ids))
            count += NUM_TOKENS
    return count


class _ForeignRow:
    """A request whose first prompt row holds the token of another request's."""

    def __init__(self, job: Job, other_ids: Sequence[int]) -> None:
        self._job, self._other_ids = job, other_ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def open_rows(self, num_prompt_rows: int) -> OpenRows:
        rows = self._job.open_rows(num_prompt_rows)
        if num_prompt_rows < 2:
            return rows
        ids = rows.ids.clone()
        ids[-2] = self._other_ids[0]
        return OpenRows(ids, rows.first_logit)


def _run_with_foreign_row(target: Target, jobs: Sequence[Job], batch: BatchMechanisms) -> None:
    other = [int(torch.tensor(prompts()[1])[5])]
    run_step(target, [_ForeignRow(job, other) for job in jobs], batch)
