"""What must hold before answers are judged; everything else makes an audit unavailable, never passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.scorers.base import ScorerDescription

__all__ = ["check_answers", "check_ids", "check_tokenizer"]


def check_ids(ids: Any, name: str) -> None:
    """ForcingError for anything but a list of token ids; servers answer null, texts and numbers with a point, too."""
    if not isinstance(ids, (Sequence, np.ndarray)) or isinstance(ids, (str, bytes)):
        raise ForcingError(f"{name}: got {type(ids).__name__}, expected a list of token ids")
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, (int, np.integer)):
            raise ForcingError(f"{name}: got {token_id!r} as a token id, expected a whole number")


def check_answers(answers: Sequence[Answer], scorer: ScorerDescription, arm: str) -> None:
    """ForcingError that names the answer: empty, cut, refused, asked twice, or of another vocabulary."""
    if not answers:
        raise ForcingError(f"{arm}: got no answers, expected at least one")
    seen: set[str] = set()
    for answer in answers:
        name = f"{arm} answer {answer.request_id!r}"
        for what, ids in (("prompt", answer.prompt_ids), ("output", answer.output_ids)):
            check_ids(ids, f"{name}, {what}")
        if answer.request_id in seen:
            raise ForcingError(f"{name}: got two answers to one request, expected one each")
        seen.add(answer.request_id)
        if len(answer.prompt_ids) == 0 or len(answer.output_ids) == 0:
            raise ForcingError(
                f"{name}: got {len(answer.prompt_ids)} prompt and {len(answer.output_ids)} output tokens, expected both"
            )
        _check_end(answer, scorer, name)
        ids = (*answer.prompt_ids, *answer.output_ids)
        size = scorer.vocab_size
        wrong = next((i for i in ids if i < 0 or (size is not None and i >= size)), None)
        if wrong is not None:
            raise ForcingError(
                f"{name}: got token id {wrong}, expected 0 to {'?' if size is None else size - 1}, the scorer's "
                "vocabulary; it has another tokenizer"
            )


def _check_end(answer: Answer, scorer: ScorerDescription, name: str) -> None:
    reason, most = answer.finish_reason, answer.max_new_tokens
    if reason not in ("stop", "length"):
        raise ForcingError(
            f"{name}: got finish reason {reason!r}, expected stop or length; the answer was cut or refused"
        )
    if most is not None and len(answer.output_ids) > most:
        raise ForcingError(f"{name}: got {len(answer.output_ids)} tokens, expected at most {most}")
    if reason == "length" and most is None:
        raise ForcingError(
            f"{name}: got finish reason length without max_new_tokens, expected what the request allowed; a cut stream "
            "looks the same"
        )
    if reason == "length" and most is not None and len(answer.output_ids) < most:
        raise ForcingError(
            f"{name}: got finish reason length after {len(answer.output_ids)} tokens, expected {most}; the stream was "
            "cut"
        )
    if reason == "stop" and not scorer.eos_ids:
        raise ForcingError(
            f"{name}: got finish reason stop, and the scorer does not tell its end-of-text ids; give them to the "
            "scorer, or a cut stream looks the same"
        )
    if reason == "stop" and answer.output_ids[-1] not in scorer.eos_ids:
        raise ForcingError(
            f"{name}: got finish reason stop without end-of-text as its last token, expected one of "
            f"{list(scorer.eos_ids)}; the stream was cut, or a stop string ended it, which an audit cannot judge"
        )


def check_tokenizer(served: str | None, scorer: ScorerDescription) -> None:
    """ForcingError if both sides tell their tokenizer and they differ."""
    if served is not None and scorer.tokenizer is not None and served != scorer.tokenizer:
        raise ForcingError(
            f"tokenizer: the served model's is {served[:12]}, the scorer's {scorer.tokenizer[:12]}; the same ids mean "
            "other text, so nothing can be scored"
        )
