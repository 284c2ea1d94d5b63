"""Token forcing: is a served system's output the target's own? (Section 3.3 of the paper; ``DESIGN.md`` beside this.)

A scorer feeds a system's answers back through the target, teacher-forced. :func:`audit` compares how often, and by how
much, tokens are not the scorer's argmax with what stock's answers come to, and says accepted, rejected or unavailable.
"""

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.arm import ScoredArm, score_arm
from specpilot.forcing.auditing import audit, judge
from specpilot.forcing.rules import Rules, delta_from_margins
from specpilot.forcing.scorers.base import Scorer, ScorerDescription, hash_tokenizer
from specpilot.forcing.verdict import Verdict

__all__ = [
    "Answer",
    "ForcingError",
    "Rules",
    "ScoredArm",
    "Scorer",
    "ScorerDescription",
    "Verdict",
    "audit",
    "delta_from_margins",
    "hash_tokenizer",
    "judge",
    "score_arm",
]
