"""Strict reading of a ``config.json``: every key is read, known to change nothing, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from specpilot.errors import CheckpointError

_Word = TypeVar("_Word", bound=str)

__all__ = ["WITHOUT_EFFECT", "ConfigReader"]

WITHOUT_EFFECT = (
    "_name_or_path",
    "architectures",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "initializer_range",
    "use_cache",
    "cache_implementation",
    "bos_token_id",
    "pad_token_id",
    "id2label",
    "label2id",
    "problem_type",
    "is_encoder_decoder",
    "chunk_size_feed_forward",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
)
"""Keys that checkpoints carry and that change no logit of a text request."""


class ConfigReader:
    """Reads one JSON object and remembers which keys were asked for.

    A key that is ``null`` counts as missing. ``where`` stands before the key in every message.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        where: str = "target config, ",
        without_effect: Sequence[str] = WITHOUT_EFFECT,
    ) -> None:
        self._data, self._where = data, where
        self._read = set(without_effect)

    def refuse(self, key: str, got: object, expected: str) -> NoReturn:
        raise CheckpointError(f"{self._where}{key}: got {got!r}, expected {expected}")

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as it is, None when missing."""
        self._read.add(key)
        return self._data.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer >= 1."""
        value = self.raw(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(key, value, "an integer >= 1")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.raw(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            self.refuse(key, value, "a positive finite number")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        return self.number(key) if self.has(key) else self.raw(key)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.raw(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.refuse(key, value, "true or false")
        return value

    def fixed(self, **allowed: object) -> None:
        """Keys that change the arithmetic, with the only value there is code for. Missing means that value."""
        for key, value in allowed.items():
            got = self.raw(key)
            if got is not None and (got != value or isinstance(got, bool) != isinstance(value, bool)):
                self.refuse(key, got, f"{value!r}, the only value this implementation has")

    def ids(self, key: str) -> tuple[int, ...]:
        """A token id, a list of them, or nothing."""
        value = self.raw(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
            self.refuse(key, value, "a token id, a list of token ids or null")
        return tuple(ids)

    def words(self, key: str, allowed: Sequence[_Word], count: int) -> tuple[_Word, ...] | None:
        """A list of ``count`` of the allowed words; None when missing."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count or any(word not in allowed for word in value):
            self.refuse(key, value, f"a list of {count} of {', '.join(allowed)}")
        return tuple(value)

    def inner(self, key: str, without_effect: Sequence[str] = ()) -> ConfigReader:
        """The object under a key, to be read as strictly."""
        value = self.raw(key)
        if not isinstance(value, Mapping):
            self.refuse(key, value, "an object")
        return ConfigReader(value, f"{self._where}{key}.", without_effect)

    def finish(self) -> None:
        """Refuse what nothing has read."""
        unknown = sorted(set(self._data) - self._read)
        if unknown:
            self.refuse(
                unknown[0],
                self._data[unknown[0]],
                "no such key: it may change the arithmetic, and nothing here reads it",
            )
