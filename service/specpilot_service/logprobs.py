"""Log-probabilities as the two endpoints write them."""

from __future__ import annotations

from collections.abc import Iterable

from specpilot.engines.base import Engine, ScoreResult, TokenLogprob
from specpilot_service.schemas import ChatLogprobs, ChatTokenLogprob, ChatTopLogprob, CompletionLogprobs

__all__ = ["CompletionLogprobWriter", "chat_logprobs", "prompt_logprobs"]

_REPLACEMENT = "\ufffd"
# JSON has no infinity; OpenAI writes this for a token that is all but impossible.
_LOWEST_LOGPROB = -9999.0
# Longest UTF-8 character: a token that completes none within so many tokens is not the beginning of one.
_MAX_CHARACTER_TOKENS = 4

_Entry = tuple[int, float | None, tuple[tuple[int, float], ...]]


def _token_label(engine: Engine, token_id: int) -> str:
    """Text of one token, or ``token_id:N`` when its bytes alone are no text: labels are never shared."""
    text = engine.detokenize([token_id])
    return text if text and _REPLACEMENT not in text else f"token_id:{token_id}"


def _finite(logprob: float) -> float:
    # Written so that NaN and -inf both become the floor.
    return logprob if logprob > _LOWEST_LOGPROB else _LOWEST_LOGPROB


def chat_logprobs(engine: Engine, entries: Iterable[TokenLogprob]) -> ChatLogprobs:
    content = []
    for entry in entries:
        top = [_chat_token(engine, token_id, logprob) for token_id, logprob in entry.top]
        token = _chat_token(engine, entry.token_id, entry.logprob)
        content.append(ChatTokenLogprob(**token.model_dump(), top_logprobs=top))
    return ChatLogprobs(content=content)


def _chat_token(engine: Engine, token_id: int, logprob: float) -> ChatTopLogprob:
    label = _token_label(engine, token_id)
    is_text = not label.startswith("token_id:")
    return ChatTopLogprob(
        token=label, logprob=_finite(logprob), bytes=list(label.encode()) if is_text else None
    )


def prompt_logprobs(prompt_ids: tuple[int, ...], score: ScoreResult | None, num_top: int) -> Iterable[_Entry]:
    """Entries of an echoed prompt: the first token has nothing before it and so no log-probability."""
    yield prompt_ids[0], None, ()
    if score is None:
        return
    for index, token_id in enumerate(prompt_ids[1:]):
        best = ((score.argmax_ids[index], score.argmax_logprobs[index]),) if num_top else ()
        yield token_id, score.logprobs[index], best


class CompletionLogprobWriter:
    """Parallel lists of the text endpoint; remembers how many characters of the choice came before."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._num_characters = 0
        self._unfinished: list[int] = []

    def write(self, entries: Iterable[_Entry]) -> CompletionLogprobs:
        tokens, logprobs, tops, offsets = [], [], [], []
        for token_id, logprob, top in entries:
            tokens.append(_token_label(self._engine, token_id))
            logprobs.append(None if logprob is None else _finite(logprob))
            tops.append(None if logprob is None else self._top(token_id, logprob, top))
            offsets.append(self._advance(token_id))
        return CompletionLogprobs(
            tokens=tokens, token_logprobs=logprobs, top_logprobs=tops, text_offset=offsets
        )

    def _top(self, token_id: int, logprob: float, top: tuple[tuple[int, float], ...]) -> dict[str, float]:
        """The most likely tokens, and the chosen one in any case."""
        pairs = (*top, (token_id, logprob))
        return {_token_label(self._engine, i): _finite(value) for i, value in pairs}

    def _advance(self, token_id: int) -> int:
        offset = self._num_characters
        self._unfinished.append(token_id)
        text = self._engine.detokenize(self._unfinished)
        if not text.endswith(_REPLACEMENT) or len(self._unfinished) == _MAX_CHARACTER_TOKENS:
            self._num_characters += len(text)
            self._unfinished.clear()
        return offset
