"""Seeded writers of training text. Each kind is one module with ``sample(rng) -> Chat``; all text is our own."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from random import Random
from typing import Final

from specpilot.errors import ConfigError
from specpilot.models.chat import Chat

__all__ = ["KINDS", "generate"]

KINDS: Final = ("school_math", "competition_math", "python_code", "dialogue", "repetition", "general_advice")


def generate(kind: str, *, seed: int, target_bytes: int) -> Iterator[Chat]:
    """Yield distinct chats of one kind until their contents reach ``target_bytes`` UTF-8 bytes, one more between turns.

    The stream depends on ``kind`` and ``seed`` only, so a larger target continues a smaller one.

    Raises
    ------
    ConfigError
        If ``kind`` is unknown, or the generator repeats itself so often that the target is out of reach.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown generator kind {kind!r}; expected one of {', '.join(KINDS)}")
    module = importlib.import_module(f"{__name__}.{kind}")
    rng = Random(f"{kind}:{seed}")
    seen: set[bytes] = set()
    written_bytes = repeats_in_a_row = 0
    while written_bytes < target_bytes:
        chat: Chat = module.sample(rng)
        content = "\0".join(message["content"] for message in chat).encode()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest in seen:
            repeats_in_a_row += 1
            if repeats_in_a_row > 10_000:
                raise ConfigError(
                    f"generator {kind!r} has nothing new after {written_bytes} bytes, expected {target_bytes}; "
                    "ask for less or add templates"
                )
            continue
        repeats_in_a_row = 0
        seen.add(digest)
        written_bytes += len(content)
        yield chat
