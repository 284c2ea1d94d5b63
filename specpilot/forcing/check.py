"""What must hold before answers are judged; everything else makes an audit unavailable, never passed."""

from __future__ import annotations

from collections.abc import Sequence

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.scorers.base import ScorerDescription

__all__ = ["check_answers", "check_tokenizer"]


def check_answers(answers: Sequence[Answer], scorer: ScorerDescription, arm: str) -> None:
    """ForcingError that names the answer: empty, cut, refused, asked twice, or of another vocabulary."""
    if not answers:
        raise ForcingError(f"{arm}: got no answers, expected at least one")
    seen: set[str] = set()
    for answer in answers:
        name = f"{arm} answer {answer.request_id!r}"
        if answer.request_id in seen:
            raise ForcingError(f"{name}: got two answers to one request, expected one each")
        seen.add(answer.request_id)
        if not answer.prompt_ids or not answer.output_ids:
            raise ForcingError(
                f"{name}: got {len(answer.prompt_ids)} prompt and {len(answer.output_ids)} output tokens, expected both"
            )
        _check_end(answer, scorer, name)
        ids = (*answer.prompt_ids, *answer.output_ids)
        size = scorer.vocab_size
        wrong = next((i for i in ids if not i >= 0 or (size is not None and i >= size)), None)
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
    if reason == "length" and most is not None and len(answer.output_ids) < most:
        raise ForcingError(
            f"{name}: got finish reason length after {len(answer.output_ids)} tokens, expected {most}; the stream was "
            "cut"
        )
    if reason == "stop" and scorer.eos_ids and answer.output_ids[-1] not in scorer.eos_ids:
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
