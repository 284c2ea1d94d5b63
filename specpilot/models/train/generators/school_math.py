"""Worked school mathematics: a word problem, one step a line, and a closing line with the answer."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.school_money import MONEY_TEMPLATES
from specpilot.models.train.generators.school_quantities import QUANTITY_TEMPLATES
from specpilot.models.train.generators.school_rates import RATE_TEMPLATES
from specpilot.models.train.generators.wording import conversation

__all__ = ["final_line", "sample"]

_TEMPLATES: Final = (*MONEY_TEMPLATES, *QUANTITY_TEMPLATES, *QUANTITY_TEMPLATES, *RATE_TEMPLATES)


def final_line(answer: str) -> str:
    """The closing sentence of every worked school problem, generated or not."""
    return f"The answer is {answer}."


def sample(rng: Random) -> Chat:
    """One problem with its solution."""
    question, steps, answer = rng.choice(_TEMPLATES)(rng)
    return conversation(question, "\n".join([*steps, final_line(answer)]))
