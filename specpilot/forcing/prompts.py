"""Prompts of our own to audit with: drawn from the generators of the training text with seeds it never used.

School problems have a known answer, so task accuracy can stand beside the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from specpilot.forcing.answer import Answer
from specpilot.models.train.generators import (
    competition_math,
    general_advice,
    python_code,
    school_math,
)

__all__ = ["AuditPrompt", "audit_prompts", "final_number", "grade_answers"]

_FIRST_SEED = 9_000_000
# School problems come twice as often: they are the ones that are graded.
_GENERATORS = (school_math, competition_math, school_math, python_code, general_advice)
_FINAL = re.compile(r"The answer is \$?(-?[\d,]+(?:\.\d+)?)")


@dataclass(frozen=True)
class AuditPrompt:
    """A question; ``answer`` is its final number, None where there is none."""

    request_id: str
    text: str
    answer: str | None


def final_number(text: str) -> str | None:
    """The number of the closing sentence of a worked problem."""
    found = _FINAL.findall(text)
    return found[-1].replace(",", "").rstrip(".") if found else None


def audit_prompts(count: int, seed: int = 0) -> list[AuditPrompt]:
    """The first ``count`` of a fixed sequence; another seed gives another one."""
    prompts = []
    for number in range(count):
        generator = _GENERATORS[number % len(_GENERATORS)]
        chat = generator.sample(Random(_FIRST_SEED + 100_000 * seed + number))
        question, worked = chat[0]["content"], chat[1]["content"]
        is_graded = generator is school_math
        name = generator.__name__.rpartition(".")[2]
        prompts.append(
            AuditPrompt(f"{number:04d}-{name}", question, final_number(worked) if is_graded else None)
        )
    return prompts


def grade_answers(
    questions: Sequence[AuditPrompt], answers: Sequence[Answer], decode: Callable[[Sequence[int]], str]
) -> dict[str, bool]:
    """Whether each answer to a graded question ends in the right number, by request id."""
    right = {one.request_id: one.answer for one in questions if one.answer is not None}
    return {
        answer.request_id: final_number(decode(answer.output_ids)) == right[answer.request_id]
        for answer in answers
        if answer.request_id in right
    }
