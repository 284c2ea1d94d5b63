"""The tokenizer and the chat template in a GGUF file's metadata."""

from __future__ import annotations

from typing import Any, NoReturn

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specpilot.errors import CheckpointError, Unsupported
from specpilot.models.gguf.reader import GgufFile
from specpilot.refengine.tokenizer import ChatTokenizer

__all__ = ["read_tokenizer"]

_NORMAL, _CONTROL = 1, 3
"""Token types of the GGUF specification."""


def _byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_PRE_TOKENIZERS: dict[str, Any] = {
    "gpt-2": _byte_level(),
    # Every digit is a token of its own.
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()]),
}
"""How text is cut before the merges, by ``tokenizer.ggml.pre``."""


def read_tokenizer(file: GgufFile) -> ChatTokenizer:
    """Byte-level BPE from the metadata.

    Raises
    ------
    Unsupported
        Another kind of tokenizer, or a way of cutting text that is not known here.
    CheckpointError
        An entry is missing or does not fit; or as :class:`ChatTokenizer` says.
    """
    metadata: dict[str, Any] = file.metadata

    def refuse(key: str, expected: str) -> NoReturn:
        shown = repr(metadata.get(key))
        raise CheckpointError(f"{file.path}: {key}: got {shown[:80]}, expected {expected}")

    for key, known in (("tokenizer.ggml.model", ["gpt2"]), ("tokenizer.ggml.pre", sorted(_PRE_TOKENIZERS))):
        if metadata.get(key) not in known:
            raise Unsupported(
                f"{file.path}: {key}: got {metadata.get(key)!r}, expected one of: {', '.join(known)}; give the model "
                "as a Hugging Face folder"
            )
    for key in (
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.add_space_prefix",
    ):
        if metadata.get(key, False) is not False:
            refuse(key, "false: prompts are what the chat template makes of them")
    tokens: Any = metadata.get("tokenizer.ggml.tokens")
    merges: Any = metadata.get("tokenizer.ggml.merges")
    types: Any = metadata.get("tokenizer.ggml.token_type")
    if not _is_text_list(tokens) or len(set(tokens)) != len(tokens):
        refuse("tokenizer.ggml.tokens", "a list of different strings")
    if not isinstance(types, list) or len(types) != len(tokens) or not set(types) <= {_NORMAL, _CONTROL}:
        refuse(
            "tokenizer.ggml.token_type",
            f"{len(tokens)} numbers, each {_NORMAL} (normal) or {_CONTROL} (control)",
        )
    if not _is_text_list(merges) or any(len(merge.split(" ")) != 2 for merge in merges):
        refuse("tokenizer.ggml.merges", "a list of strings of two parts with a space between")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.merges: do not fit the tokens ({error})"
        ) from error
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[metadata["tokenizer.ggml.pre"]]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _CONTROL
        ]
    )
    names = {}
    for name in ("bos", "eos"):
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None:
            if not isinstance(token_id, int) or not 0 <= token_id < len(tokens):
                refuse(f"tokenizer.ggml.{name}_token_id", f"an id below {len(tokens)}")
            names[f"{name}_token"] = tokens[token_id]
    return ChatTokenizer(
        tokenizer.to_str(),
        metadata.get("tokenizer.chat_template"),
        source=str(file.path),
        template_source=f"{file.path}: tokenizer.chat_template",
        special_names=names,
    )


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)
