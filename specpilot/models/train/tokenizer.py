"""The bundled models' byte-level BPE of 4,096 entries: training, saving, loading, safe encoding of chats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from specpilot.errors import CheckpointError
from specpilot.models.chat import (
    ASSISTANT,
    CHAT_TEMPLATE,
    END_OF_TEXT,
    IM_END,
    IM_START,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    Message,
)

__all__ = [
    "MAX_CONTEXT_TOKENS",
    "encode_chat",
    "encode_plain",
    "load_tokenizer",
    "save_tokenizer",
    "train_tokenizer",
]

MAX_CONTEXT_TOKENS: Final = 8192

# Words take one leading space, underscore, backslash or dot along (identifiers, LaTeX commands, attributes), digits
# stand alone, punctuation runs stay together, and white space ends before the space that belongs to the next word.
_PIECES: Final = (
    r"'(?:s|t|re|ve|m|ll|d)\b"
    r"|[ _\\.]?\p{L}+"
    r"|\p{N}"
    r"| ?(?:[^\s\p{L}\p{N}_\\.]|[_\\.](?!\p{L}))+"
    r"|\s+(?!\S)"
    r"|\s+"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train on an iterable of documents; the same texts in the same order give the same tokenizer.

    Raises
    ------
    CheckpointError
        If the texts are too uniform for 4,096 entries.
    """
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        # All 256 bytes are entries, so every UTF-8 string has an encoding.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise CheckpointError(
            f"the tokenizer has {tokenizer.get_vocab_size()} entries, expected {VOCAB_SIZE}; train on more varied text"
        )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json in the Hugging Face layout."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {"eos_token": IM_END, "pad_token": END_OF_TEXT}
    extra = [token for token in SPECIAL_TOKENS if token not in named.values()]
    config = {
        "added_tokens_decoder": {
            str(index): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for index, token in enumerate(SPECIAL_TOKENS)
        },
        "additional_special_tokens": extra,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_CONTEXT_TOKENS,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
    }
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    for name, content in (
        ("tokenizer_config.json", config),
        ("special_tokens_map.json", {**named, "additional_special_tokens": extra}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load a saved tokenizer and check that its special tokens are where the chat format puts them."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{path} is missing; build it with python -m specpilot.models.train.corpus")
    tokenizer = Tokenizer.from_file(str(path))
    for index, token in enumerate(SPECIAL_TOKENS):
        if tokenizer.token_to_id(token) != index:
            raise CheckpointError(
                f"{path}: {token} has id {tokenizer.token_to_id(token)}, expected {index}; rebuild the tokenizer"
            )
    return tokenizer


def encode_plain(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Encode texts so that special strings inside them stay ordinary characters.

    Encodes in parallel; changes a flag of ``tokenizer`` for the time of the call, so do not share it with a thread
    that encodes meanwhile.
    """
    before = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True
    try:
        return [
            encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        ]
    finally:
        tokenizer.encode_special_tokens = before


def encode_chat(
    tokenizer: Tokenizer, messages: Sequence[Message], *, add_generation_prompt: bool = False
) -> list[int]:
    """Token ids of a rendered chat; only the template itself yields special ids, whatever the contents say."""
    turns = [f"{message['role']}\n{message['content']}" for message in messages]
    encoded = encode_plain(tokenizer, [*turns, "\n", f"{ASSISTANT}\n"])
    newline, opening = encoded[-2], encoded[-1]
    start, end = SPECIAL_TOKENS.index(IM_START), SPECIAL_TOKENS.index(IM_END)
    ids: list[int] = []
    for turn in encoded[:-2]:
        ids += [start, *turn, end, *newline]
    return [*ids, start, *opening] if add_generation_prompt else ids
