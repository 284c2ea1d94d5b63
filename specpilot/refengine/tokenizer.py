"""The tokenizer of a checkpoint: plain text, chats, and the bytes of each token."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from specpilot.errors import CheckpointError, RequestError

__all__ = ["ChatTokenizer"]

# Stand-ins for message contents while the template is rendered (private-use characters, numbered).
_SLOT = re.compile("\ue000(\\d+)\ue001")


def _byte_of_symbol() -> dict[str, int]:
    """Inverse of GPT-2's byte-level alphabet: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(256 + index): byte for index, byte in enumerate(rest)}


def _refuse_chat(message: object) -> NoReturn:
    """``raise_exception`` of chat templates."""
    raise jinja2.TemplateError(str(message))


class ChatTokenizer:
    """Byte-level BPE tokenizer with a chat template.

    Special tokens exist only where the template puts them: text that merely spells one is encoded as plain characters.

    Parameters
    ----------
    definition : str
        What a ``tokenizer.json`` holds.
    template
        Jinja source; it runs in a sandbox.
    source, template_source : str
        Where the two come from, for messages.
    special_names : mapping
        Variables the template may use, ``bos_token`` and the like.

    Raises
    ------
    CheckpointError
        The definition is not of a byte-level BPE tokenizer, or the template does not render a chat.
    """

    def __init__(
        self,
        definition: str,
        template: object,
        *,
        source: str,
        template_source: str,
        special_names: Mapping[str, str] | None = None,
    ) -> None:
        try:
            self._with_specials = Tokenizer.from_str(definition)
            self._plain = Tokenizer.from_str(definition)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{source}: not a tokenizer this library reads ({error})") from error
        self._plain.encode_special_tokens = True
        self.vocab_size = self._with_specials.get_vocab_size()
        self._special_names = dict(special_names or {})
        try:
            environment = ImmutableSandboxedEnvironment(
                trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
            )
            environment.globals["raise_exception"] = _refuse_chat
            self._template = environment.from_string(template)  # type: ignore[arg-type]
            rendered = self._render(["user", "assistant"])
        except (ValueError, TypeError, AttributeError, jinja2.TemplateError) as error:
            raise CheckpointError(
                f"{template_source}: expected a chat template that renders a chat, got {error!r}"
            ) from error
        if _SLOT.findall(rendered) != ["0", "1"]:
            raise CheckpointError(
                f"{template_source}: the chat template does not give every message once, in order"
            )
        self.template = str(template)
        specials = {
            token_id: token.content
            for token_id, token in self._with_specials.get_added_tokens_decoder().items()
        }
        alphabet = _byte_of_symbol()
        self._bytes: list[bytes] = []
        for token_id in range(self.vocab_size):
            symbols = "" if token_id in specials else self._with_specials.id_to_token(token_id)
            if symbols is None or any(symbol not in alphabet for symbol in symbols):
                raise CheckpointError(
                    f"{source}: token {token_id} is {symbols!r}, expected a byte-level BPE vocabulary"
                )
            self._bytes.append(bytes(alphabet[symbol] for symbol in symbols))

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """Read ``tokenizer.json`` and ``tokenizer_config.json``."""
        file, settings = folder / "tokenizer.json", folder / "tokenizer_config.json"
        for path in (file, settings):
            if not path.exists():
                raise CheckpointError(
                    f"{path}: got no such file, expected the tokenizer of the model; copy it there"
                )
        try:
            values = json.loads(settings.read_text(encoding="utf-8"))
            template = values["chat_template"]
            definition = file.read_text(encoding="utf-8")
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{settings}: expected JSON with a chat_template, got {error!r}") from error
        names = {}
        for name in ("bos_token", "eos_token"):
            token = values.get(name)
            token = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(token, str):
                names[name] = token
        return cls(definition, template, source=str(file), template_source=str(settings), special_names=names)

    def write(self, folder: Path) -> None:
        """Write what :meth:`from_folder` reads."""
        settings = {**self._special_names, "chat_template": self.template}
        (folder / "tokenizer.json").write_text(self._with_specials.to_str(), encoding="utf-8")
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
        (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of a token; special tokens have none, nor have ids that only the model's padded vocabulary knows."""
        return self._bytes[token_id] if token_id < len(self._bytes) else b""

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def _render(self, roles: Sequence[str], thinking: bool | None = None) -> str:
        """The template around numbered slots, one for the content of each message."""
        switch = {} if thinking is None else {"enable_thinking": thinking}
        slots = [{"role": role, "content": f"\ue000{index}\ue001"} for index, role in enumerate(roles)]
        return self._template.render(
            messages=slots,
            add_generation_prompt=True,
            tools=None,
            documents=None,
            **switch,
            **self._special_names,
        )

    def encode_chat(self, messages: Sequence[Mapping[str, str]], thinking: bool | None = None) -> list[int]:
        """Prompt ids of a chat up to where the assistant's answer begins.

        ``thinking`` is the template's ``enable_thinking``; None leaves it out, and a template without one ignores it.
        """
        if not messages:
            raise RequestError("messages: got none, expected at least one", param="messages")
        for index, message in enumerate(messages):
            if message["role"] not in ("system", "user", "assistant"):
                expected = "system, user or assistant"
                raise RequestError(
                    f"messages[{index}].role: got {message['role']!r}, expected {expected}",
                    param=f"messages[{index}].role",
                )
        try:
            rendered = self._render([message["role"] for message in messages], thinking)
        except (ValueError, TypeError, jinja2.TemplateError) as error:
            raise RequestError(
                f"messages: the model's chat template refuses them: {error}", param="messages"
            ) from error
        if _SLOT.findall(rendered) != [str(index) for index in range(len(messages))]:
            raise RequestError(
                "messages: the model's chat template does not give every message once, in order; leave out what it "
                "has no place for",
                param="messages",
            )
        ids: list[int] = []
        for index, piece in enumerate(_SLOT.split(rendered)):
            if index % 2:
                ids += self.encode(messages[int(piece)]["content"])
            else:
                ids += self._with_specials.encode(piece, add_special_tokens=False).ids
        return ids
