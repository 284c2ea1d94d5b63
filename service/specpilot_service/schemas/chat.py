"""Chat completions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from specpilot_service.schemas.base import RequestModel, ResponseModel
from specpilot_service.schemas.common import (
    SamplingFields,
    SpeculationReport,
    Usage,
    is_none,
    is_text,
)
from specpilot_service.schemas.neutral import CHAT_NEUTRAL, MESSAGE_NEUTRAL, drop_neutral

__all__ = [
    "ChatAnswerMessage",
    "ChatChoice",
    "ChatChunk",
    "ChatChunkChoice",
    "ChatCompletion",
    "ChatDelta",
    "ChatLogprobs",
    "ChatMessage",
    "ChatRequest",
    "ChatTokenLogprob",
    "ChatTopLogprob",
]


class ChatMessage(RequestModel):
    """One turn; ``content`` may be a list of text parts, ``developer`` is a newer name of ``system``."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, data: Any) -> Any:
        return drop_neutral(data, MESSAGE_NEUTRAL)

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        for part in value:
            if not (isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"):
                raise PydanticCustomError(
                    "text_part", 'expected a string or parts with type "text" and a text'
                )
            if not isinstance(part["text"], str):
                raise PydanticCustomError("text_part", "the text of a part must be a string")
        return "".join(part["text"] for part in value)

    @field_validator("content")
    @classmethod
    def _is_encodable(cls, value: str) -> str:
        if not is_text(value):
            raise PydanticCustomError("text", "half of a surrogate pair, expected text that UTF-8 can hold")
        return value


class ChatRequest(SamplingFields):
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, data: Any) -> Any:
        return drop_neutral(data, CHAT_NEUTRAL)


class ChatTopLogprob(ResponseModel):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(ChatTopLogprob):
    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(ResponseModel):
    content: list[ChatTokenLogprob]
    refusal: None = None


class ChatAnswerMessage(ResponseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(ResponseModel):
    index: int
    message: ChatAnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(ResponseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    specpilot: SpeculationReport


class ChatDelta(ResponseModel):
    """What a frame adds: the role once, in the first frame of a choice, then text."""

    role: Literal["assistant"] | None = Field(default=None, exclude_if=is_none)
    content: str | None = Field(default=None, exclude_if=is_none)


class ChatChunkChoice(ResponseModel):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class ChatChunk(ResponseModel):
    """One frame of a stream; ``usage`` is null until the last frame, ``specpilot`` only in the last one."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    specpilot: SpeculationReport | None = Field(default=None, exclude_if=is_none)
