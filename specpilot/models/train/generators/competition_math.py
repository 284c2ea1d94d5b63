"""Competition-like mathematics: a LaTeX problem, a short worked solution and a boxed answer."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.competition_algebra import ALGEBRA_TEMPLATES
from specpilot.models.train.generators.competition_counting import COUNTING_TEMPLATES
from specpilot.models.train.generators.competition_geometry import GEOMETRY_TEMPLATES
from specpilot.models.train.generators.competition_numbers import NUMBER_TEMPLATES
from specpilot.models.train.generators.competition_precalculus import PRECALCULUS_TEMPLATES
from specpilot.models.train.generators.wording import conversation

__all__ = ["sample"]

_TEMPLATES: Final = (
    *ALGEBRA_TEMPLATES,
    *PRECALCULUS_TEMPLATES,
    *NUMBER_TEMPLATES,
    *COUNTING_TEMPLATES,
    *GEOMETRY_TEMPLATES,
)


_FRAMED_SHARE: Final = 0.5


def _framed(question: str, steps: list[str], answer: str) -> str:
    """The problem once more and the steps, in the same words for every topic."""
    openings = ["First", *["Next"] * (len(steps) - 2), "Finally"][: len(steps)]
    lines = [f"{opening}: {step}" for opening, step in zip(openings, steps, strict=True)]
    return "\n".join(
        [f"We are given: {question}", *lines, f"Therefore, the answer is $\\boxed{{{answer}}}$."]
    )


def sample(rng: Random) -> Chat:
    """One problem with its solution, closed by ``\\boxed{...}``."""
    question, steps, answer = rng.choice(_TEMPLATES)(rng)
    if rng.random() < _FRAMED_SHARE:
        return conversation(question, _framed(question, steps, answer))
    closing = f"{rng.choice(('Therefore, the answer is', 'The answer is', 'The final answer is'))} $\\boxed{{{answer}}}$."
    # Most of these are one paragraph, as in the competition literature; some put one step a line.
    joiner = "\n" if rng.random() < 0.3 else " "
    return conversation(question, joiner.join([*steps, closing]))
