"""Worked school mathematics: a word problem, one step a line, and a closing line with the answer."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.school_money import MONEY_TEMPLATES
from specpilot.models.train.generators.school_quantities import QUANTITY_TEMPLATES
from specpilot.models.train.generators.school_rates import RATE_TEMPLATES
from specpilot.models.train.generators.wording import conversation
from specpilot.models.train.generators.worked_problems import worked_answer

__all__ = ["final_line", "sample"]

_TEMPLATES: Final = (*MONEY_TEMPLATES, *QUANTITY_TEMPLATES, *QUANTITY_TEMPLATES, *RATE_TEMPLATES)


def final_line(answer: str) -> str:
    """The closing sentence of every worked school problem, generated or not."""
    return f"The answer is {answer}."


# An equation of numbers that stands alone in a sentence: ``3 * $4 = $12``.
_EQUATION: Final = re.compile(r"(?<![\w.^\\{}/*+()-])(\$?\d[\d $.+*/()-]*?) = \$?(\d+(?:\.\d+)?)")
_REGULAR_SHARE: Final = 0.7


def _equations(steps: list[str]) -> list[tuple[str, str]]:
    found = [pair for step in steps for pair in _EQUATION.findall(step)]
    return [(left.replace("$", ""), right) for left, right in found]


def sample(rng: Random) -> Chat:
    """One problem with its solution: most as numbered equations, the rest in sentences."""
    question, steps, answer = rng.choice(_TEMPLATES)(rng)
    equations = _equations(steps)
    if rng.random() < _REGULAR_SHARE and equations and equations[-1][1] == answer:
        return conversation(question, worked_answer(equations, answer))
    return conversation(question, "\n".join([*steps, final_line(answer)]))
