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


def sample(rng: Random) -> Chat:
    """One problem with its solution, closed by ``\\boxed{...}``."""
    question, steps, answer = rng.choice(_TEMPLATES)(rng)
    closing = f"{rng.choice(('Therefore, the answer is', 'The answer is', 'The final answer is'))} $\\boxed{{{answer}}}$."
    # Most solutions are one paragraph, as in the competition literature; some put one step a line.
    joiner = "\n" if rng.random() < 0.3 else " "
    return conversation(question, joiner.join([*steps, closing]))
