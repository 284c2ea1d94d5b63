"""JSON Schemas as masks over the vocabulary, by llguidance: an Earley parser over bytes, so tokens may cut characters.

A mask allows every token that can go on, except where the schema leaves one text only (a required name, say): there it
allows that text's usual tokens alone, and not the same letters cut in another way.

Its cost is bounded three times. A schema text is at most ``MAX_SCHEMA_BYTES`` long. A schema seen for the first time is
compiled in a process of its own with limits on time and memory (``schema_trial``), because some few bytes of schema ask
for more work than any machine has; only one that came through is compiled here. And each mask may take a fixed amount
of the library's own fuel, counted in work and not in time, so that its outcome is the same everywhere.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from torch import Tensor

from specpilot.errors import EngineError, RequestError, Unsupported
from specpilot.sampling.schema_trial import try_grammar

__all__ = ["MAX_SCHEMA_BYTES", "GrammarCursor", "GrammarTokenizer", "JsonGrammars"]

MAX_SCHEMA_BYTES = 64 * 1024
# Compiled schemas kept. A schema that was refused is remembered too.
_MAX_KEPT = 64
_MAX_SHOWN_CHARS = 300
# What the library says when it is used wrongly; everything else is one of its limits.
_FAULTS = ("panic", "parser stopped", "doesn't satisfy the grammar")
# One space may stand between the parts of a JSON text. More would be valid too, but some models then write little else.
_OPTIONS = {"lenient": False, "whitespace_flexible": True, "whitespace_pattern": " "}


class GrammarTokenizer(Protocol):
    """The part of a tokenizer that a grammar reads."""

    @property
    def vocab_size(self) -> int: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def encode(self, text: str) -> list[int]: ...


class GrammarCursor:
    """Place of one answer in its grammar. The answer ends with an end-of-text token where the grammar allows it."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._matcher, self._vocab_size, self._eos_ids = matcher, vocab_size, frozenset(eos_ids)
        self._has_ended = False

    def mask(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        """Copy of ``logits`` (R, V) with -inf at what may not follow; row i as if ``path[:i]`` had been said.

        Rows behind a token of the path that the grammar forbids, or that ends the answer, are never reached and stay
        as they are. The place in the grammar is the same afterwards.
        """
        if self._has_ended:
            return logits
        out = logits.clone()
        num_consumed = 0
        for row in range(len(out)):
            is_allowed = self._allowed()
            out[row].masked_fill_(~is_allowed, -torch.inf)
            if row == len(path) or path[row] in self._eos_ids or not is_allowed[path[row]]:
                break
            self._consume(path[row])
            num_consumed += 1
        self._matcher.rollback(num_consumed)
        return out

    def advance(self, token_ids: Sequence[int]) -> None:
        """Go on past tokens the mask allowed; what stands behind end-of-text is no part of the answer."""
        for token_id in token_ids:
            self._has_ended = self._has_ended or token_id in self._eos_ids
            if self._has_ended:
                return
            self._consume(token_id)

    def _allowed(self) -> Tensor:
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        return torch.from_numpy(np.unpackbits(packed, bitorder="little")[: self._vocab_size].view(np.bool_))

    def _consume(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        """A matcher in error stays so: it ran into a limit, unless this engine fed it what its mask forbids."""
        if self._matcher.is_error():
            reason = self._matcher.get_error()
            if any(words in reason for words in _FAULTS):
                raise EngineError(f"grammar: {reason}")
            raise _refusal(f"this answer needs too much work ({reason})")


class JsonGrammars:
    """Compiles schemas for one tokenizer and keeps the latest. Any thread may use it.

    Parameters
    ----------
    vocab_size
        V of the logits; ids behind the tokenizer's own are never allowed.
    eos_ids
        What may end an answer.
    """

    def __init__(self, tokenizer: GrammarTokenizer, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size, self._eos_ids = tokenizer, vocab_size, list(eos_ids)
        self._ll_tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._outcome = lru_cache(_MAX_KEPT)(self._compile)

    def start(self, schema: str) -> GrammarCursor:
        """A cursor at the beginning of an answer; RequestError if the schema is wrong, unknown or too costly."""
        if not self._eos_ids:
            raise Unsupported(
                "response_format: this model names no end-of-text token, which ends such answers"
            )
        outcome = self._outcome(schema)
        if isinstance(outcome, str):
            raise _refusal(outcome)
        return GrammarCursor(outcome.deep_copy(), self._vocab_size, self._eos_ids)

    def _compile(self, schema: str) -> LLMatcher | str:
        """The matcher at its beginning, or why there is none."""
        try:
            num_bytes = len(schema.encode())
            if num_bytes > MAX_SCHEMA_BYTES:
                return f"got a schema of {num_bytes} bytes, expected at most {MAX_SCHEMA_BYTES}"
            is_object = isinstance(json.loads(schema), dict)
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_OPTIONS) if is_object else ""  # type: ignore[arg-type]
        except (ValueError, RecursionError) as error:
            return f"got a schema that cannot be read ({error})"
        if not is_object:
            return "got a schema that is no JSON object"
        with self._lock:  # hostile schemas take one core, however many come
            reason = try_grammar(grammar)
            if reason is not None:
                return reason
            limits = LLParserLimits(verbose_errors=False)
            matcher = LLMatcher(self._tokenizer_of_library(), grammar, log_level=0, limits=limits)
        return matcher.get_error() if matcher.is_error() else matcher

    def _tokenizer_of_library(self) -> LLTokenizer:
        """Built for the first schema: most runs never see one."""
        if self._ll_tokenizer is None:
            wrapper = TokenizerWrapper(_Vocabulary(self._tokenizer, self._eos_ids[0]))
            self._ll_tokenizer = LLTokenizer(wrapper, n_vocab=self._vocab_size, eos_token=self._eos_ids)
        return self._ll_tokenizer


class _Vocabulary:
    """The attributes by which llguidance reads a tokenizer. A token without bytes matches no text."""

    bos_token_id = None

    def __init__(self, tokenizer: GrammarTokenizer, eos_id: int) -> None:
        self._tokenizer, self.eos_token_id = tokenizer, eos_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)]
        self.special_token_ids = [token_id for token_id, data in enumerate(self.tokens) if not data]

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8"))


def _refusal(reason: str) -> RequestError:
    shown = " ".join(reason.split())
    shown = shown if len(shown) <= _MAX_SHOWN_CHARS else shown[:_MAX_SHOWN_CHARS] + "..."
    return RequestError(
        f"response_format: {shown}; send a JSON Schema of the supported keywords, or a simpler one",
        param="response_format",
        code="invalid_json_schema",
    )
