"""Log-probabilities as the two endpoints write them. They are the model's own, before any sampling option."""

from __future__ import annotations

from collections.abc import Iterable

from specpilot.engines.base import Engine, ScoreResult, TokenLogprob
from specpilot_service.schemas import ChatLogprobs, ChatTokenLogprob, ChatTopLogprob, CompletionLogprobs

__all__ = ["CompletionLogprobWriter", "TokenLabels", "chat_logprobs", "prompt_logprobs"]

_REPLACEMENT = "\ufffd"
# JSON has no infinity; OpenAI writes this for a token that is all but impossible.
_LOWEST_LOGPROB = -9999.0
# Longest UTF-8 character: a token that completes none within so many tokens is not the beginning of one.
_MAX_CHARACTER_TOKENS = 4

_Entry = tuple[int, float | None, tuple[tuple[int, float], ...]]


class TokenLabels:
    """Names of tokens in an answer: their text, or ``token_id:N`` when their bytes alone are no text.

    Labels are never shared. With ``are_ids`` all of them are ``token_id:N``.
    """

    def __init__(self, engine: Engine, *, are_ids: bool) -> None:
        self._engine, self._are_ids = engine, are_ids

    def label(self, token_id: int) -> str:
        text = "" if self._are_ids else self._engine.detokenize([token_id])
        return text if text and _REPLACEMENT not in text else f"token_id:{token_id}"

    def token_bytes(self, token_id: int) -> list[int]:
        """What the token adds to the answer's UTF-8, half a character too; nothing for a special token."""
        return list(self._engine.token_bytes(token_id))


def _finite(logprob: float) -> float:
    # Written so that NaN and -inf both become the floor.
    return logprob if logprob > _LOWEST_LOGPROB else _LOWEST_LOGPROB


def chat_logprobs(labels: TokenLabels, entries: Iterable[TokenLogprob]) -> ChatLogprobs:
    def one(token_id: int, logprob: float) -> ChatTopLogprob:
        return ChatTopLogprob(
            token=labels.label(token_id), logprob=_finite(logprob), bytes=labels.token_bytes(token_id)
        )

    content = []
    for entry in entries:
        top = [one(token_id, logprob) for token_id, logprob in entry.top]
        token = one(entry.token_id, entry.logprob)
        content.append(ChatTokenLogprob(**token.model_dump(), top_logprobs=top))
    return ChatLogprobs(content=content)


def prompt_logprobs(prompt_ids: tuple[int, ...], score: ScoreResult | None) -> Iterable[_Entry]:
    """Entries of an echoed prompt: the first token has nothing before it and so no log-probability."""
    yield prompt_ids[0], None, ()
    if score is not None:
        yield from zip(prompt_ids[1:], score.logprobs, score.top, strict=True)


class CompletionLogprobWriter:
    """Parallel lists of the text endpoint; remembers how many characters of the choice came before."""

    def __init__(self, engine: Engine, labels: TokenLabels) -> None:
        self._engine, self._labels = engine, labels
        self._num_characters = 0
        self._unfinished: list[int] = []

    def write(self, entries: Iterable[_Entry]) -> CompletionLogprobs:
        tokens, logprobs, tops, offsets = [], [], [], []
        for token_id, logprob, top in entries:
            tokens.append(self._labels.label(token_id))
            logprobs.append(None if logprob is None else _finite(logprob))
            tops.append(None if logprob is None else self._top(token_id, logprob, top))
            offsets.append(self._advance(token_id))
        return CompletionLogprobs(
            tokens=tokens, token_logprobs=logprobs, top_logprobs=tops, text_offset=offsets
        )

    def _top(self, token_id: int, logprob: float, top: tuple[tuple[int, float], ...]) -> dict[str, float]:
        """The most likely tokens, and the chosen one in any case."""
        return {self._labels.label(i): _finite(value) for i, value in (*top, (token_id, logprob))}

    def _advance(self, token_id: int) -> int:
        offset = self._num_characters
        self._unfinished.append(token_id)
        text = self._engine.detokenize(self._unfinished)
        if not text.endswith(_REPLACEMENT) or len(self._unfinished) == _MAX_CHARACTER_TOKENS:
            self._num_characters += len(text)
            self._unfinished.clear()
        return offset
