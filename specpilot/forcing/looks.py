"""Audits that look as data come in: at totals named beforehand, or not at all.

Looking again and again at a fixed level rejects a lossless system sooner or later. Here looks are planned, both levels
are divided by their number (Bonferroni: it holds however the looks depend on each other), a rejection ends the audit,
and only the last look, which has an answer to each of stock's requests, accepts. Every other use is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specpilot.errors import ForcingError
from specpilot.forcing.arm import ScoredArm
from specpilot.forcing.auditing import judge
from specpilot.forcing.rules import Rules
from specpilot.forcing.scorers.base import Scorer
from specpilot.forcing.verdict import Verdict

__all__ = ["Look", "SequentialAudit"]


@dataclass(frozen=True)
class Look:
    """What a look says: ``reject`` and ``accept`` end the audit, ``go on`` is no verdict."""

    decision: Literal["accept", "reject", "go on"]
    number: int
    verdict: Verdict


class SequentialAudit:
    """One audit with several looks.

    Parameters
    ----------
    rules
        For one look; ``num_looks`` is set here.
    planned_tokens
        Tokens of the system at which it is looked at, increasing; a look comes with the first data that reach them.
    """

    def __init__(self, rules: Rules, planned_tokens: Sequence[int]) -> None:
        pairs = itertools.pairwise(planned_tokens)
        if not planned_tokens or planned_tokens[0] < rules.min_tokens or any(a >= b for a, b in pairs):
            raise ForcingError(
                f"looks: got {list(planned_tokens)}, expected increasing totals from {rules.min_tokens} tokens on"
            )
        self._planned = tuple(planned_tokens)
        self._rules = replace(rules, num_looks=len(planned_tokens))
        self._seen: dict[str, tuple[int, ...]] = {}
        self._num_looks = 0
        self._is_over = False

    def look(self, system: ScoredArm, stock: ScoredArm, scorer: Scorer, *, seed: int = 0) -> Look:
        """The next planned look; ForcingError for one that was not planned, or at other data."""
        if self._is_over:
            raise ForcingError("looks: the audit has ended; another one needs other data")
        planned, total = self._planned[self._num_looks], system.counts.num_tokens
        if total < planned:
            raise ForcingError(
                f"looks: got {total} tokens, expected at least {planned}; the next look is planned there, and another "
                "one would make the levels wrong"
            )
        answers = {answer.request_id: tuple(answer.output_ids) for answer in system.answers}
        if any(answers.get(name) != ids for name, ids in self._seen.items()):
            raise ForcingError(
                "looks: answers of an earlier look are gone or changed, expected more of the same data"
            )
        is_last = self._num_looks + 1 == len(self._planned)
        verdict = judge(system, stock, scorer, self._rules, seed=seed, is_complete=is_last)
        self._seen = answers
        self._num_looks += 1
        if verdict.passed is False:
            self._is_over = True
            return Look("reject", self._num_looks, verdict)
        if self._num_looks == len(self._planned):
            self._is_over = True
            return Look("accept", self._num_looks, verdict)
        return Look("go on", self._num_looks, verdict)
