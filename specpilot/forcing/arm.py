"""One system's answers with their scores: what both rules are applied to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.check import check_answers
from specpilot.forcing.events import Event, find_events
from specpilot.forcing.rules import Rules
from specpilot.forcing.scorers.base import Scorer
from specpilot.forcing.scores import ArmCounts

__all__ = ["ScoredArm", "score_arm"]


@dataclass(frozen=True)
class ScoredArm:
    """Answers in the order of their request ids, their counts, and the large-margin events of each."""

    answers: tuple[Answer, ...]
    counts: ArmCounts
    events: tuple[tuple[Event, ...], ...]

    @property
    def num_events(self) -> int:
        return sum(len(group) for group in self.events)


def score_arm(
    answers: Sequence[Answer],
    scorer: Scorer,
    rules: Rules,
    name: str = "system",
    on_scored: Callable[[int], None] = lambda num_tokens: None,
) -> ScoredArm:
    """Check and score; ForcingError for what cannot be judged. A scored stock may serve many audits."""
    about = scorer.describe()
    check_answers(answers, about, name)
    answers = sorted(answers, key=lambda answer: answer.request_id)
    scores = scorer.score(answers, on_scored)
    if len(scores) != len(answers):
        raise ForcingError(f"{name}: got scores of {len(scores)} answers, expected {len(answers)}")
    events, mismatches = [], []
    for answer, score in zip(answers, scores, strict=True):
        score.check(len(answer.output_ids), f"{name} answer {answer.request_id!r}", about.vocab_size)
        mismatches.append(int(score.mismatches(answer.output_ids).sum()))
        events.append(tuple(find_events(answer, score, rules.large_margin, rules.context_tokens)))
    counts = ArmCounts(
        tuple(answer.request_id for answer in answers),
        np.array([len(answer.output_ids) for answer in answers]),
        np.array(mismatches),
        np.array([len(group) for group in events]),
    )
    return ScoredArm(tuple(answers), counts, tuple(events))
