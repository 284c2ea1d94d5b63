"""The chat format of the bundled models: special tokens, the template, and its plain-Python rendering.

This is the only place that spells them; the tokenizer builder, the corpus and the tests import from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

__all__ = [
    "ASSISTANT",
    "CHAT_TEMPLATE",
    "END_OF_TEXT",
    "IM_END",
    "IM_START",
    "MASK",
    "ROLES",
    "SPECIAL_TOKENS",
    "USER",
    "VOCAB_SIZE",
    "Chat",
    "Message",
    "render_chat",
]


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


Chat = list[Message]

VOCAB_SIZE: Final = 4096
END_OF_TEXT: Final = "<|endoftext|>"  # between documents; also the padding token
IM_START: Final = "<|im_start|>"  # opens a turn, followed by the role and a newline
IM_END: Final = "<|im_end|>"  # closes a turn; generation of a chat answer stops here
MASK: Final = "<|mask|>"  # fills the positions a DFlash drafter predicts
_RESERVED: Final = tuple(f"<|reserved_{index}|>" for index in range(4))

# The order gives the ids: 0, 1, 2, ...
SPECIAL_TOKENS: Final = (END_OF_TEXT, IM_START, IM_END, MASK, *_RESERVED)

USER: Final = "user"
ASSISTANT: Final = "assistant"
ROLES: Final = ("system", USER, ASSISTANT)

CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{{ '" + IM_START + "' + message['role'] + '\\n' + message['content'] + '" + IM_END + "' + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '" + IM_START + ASSISTANT + "\\n' }}"
    "{%- endif -%}"
)


def render_chat(messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
    """Render messages as the Jinja template does.

    The text names special tokens literally, so it is safe to tokenise only when no content contains them;
    ``specpilot.models.train.tokenizer.encode_chat`` has no such limit.
    """
    turns = "".join(f"{IM_START}{message['role']}\n{message['content']}{IM_END}\n" for message in messages)
    return turns + (f"{IM_START}{ASSISTANT}\n" if add_generation_prompt else "")
