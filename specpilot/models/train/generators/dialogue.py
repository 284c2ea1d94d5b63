"""Two-turn dialogues in the manner of questions to a general assistant."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.dialogue_explain import EXPLAIN_TEMPLATES
from specpilot.models.train.generators.dialogue_practical import PRACTICAL_TEMPLATES
from specpilot.models.train.generators.dialogue_reasoning import REASONING_TEMPLATES
from specpilot.models.train.generators.dialogue_writing import WRITING_TEMPLATES

__all__ = ["sample"]

# One family first, so that a family's weight does not depend on how many templates it has.
_FAMILIES: Final = (EXPLAIN_TEMPLATES, WRITING_TEMPLATES, PRACTICAL_TEMPLATES, REASONING_TEMPLATES)


def sample(rng: Random) -> Chat:
    """One dialogue: user, assistant, user, assistant."""
    return rng.choice(rng.choice(_FAMILIES))(rng)
