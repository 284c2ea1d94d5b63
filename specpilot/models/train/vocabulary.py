"""Ids of the special tokens, read from the tokenizer that the corpus was built with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from specpilot.errors import ConfigError

__all__ = ["Vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    size: int
    document_end: int
    turn_end: int
    mask: int

    @classmethod
    def load(cls, folder: Path) -> Vocabulary:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

        def special(text: str) -> int:
            token_id: int | None = tokenizer.token_to_id(text)
            if token_id is None:
                raise ConfigError(f"{folder}: special token {text!r} is missing; rebuild the corpus")
            return token_id

        return cls(
            tokenizer.get_vocab_size(), special("<|endoftext|>"), special("<|im_end|>"), special("<|mask|>")
        )
