"""Text completions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from specpilot_service.schemas.base import ResponseModel
from specpilot_service.schemas.common import (
    SamplingFields,
    SpeculationReport,
    Usage,
    is_none,
    is_text,
)
from specpilot_service.schemas.neutral import COMPLETION_NEUTRAL, drop_neutral

__all__ = [
    "Completion",
    "CompletionChoice",
    "CompletionChunk",
    "CompletionChunkChoice",
    "CompletionLogprobs",
    "CompletionRequest",
]


def _is_id_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


class CompletionRequest(SamplingFields):
    """``prompt`` is normalised to a list of prompts, each a text or a list of token ids.

    ``return_token_ids``, as in vLLM, adds ``prompt_token_ids`` and ``token_ids`` to every choice: what an audit reads.
    It changes nothing of how the answer is decoded, as log-probabilities would.
    """

    prompt: list[str | list[int]] = Field(min_length=1)
    max_tokens: int = 16
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool = False
    return_token_ids: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, data: Any) -> Any:
        return drop_neutral(data, COMPLETION_NEUTRAL)

    @field_validator("max_tokens", "echo", mode="before")
    @classmethod
    def _null_is_default(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    @field_validator("prompt", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        if is_text(value) or _is_id_list(value):
            return [value]
        if isinstance(value, list) and value and (all(map(is_text, value)) or all(map(_is_id_list, value))):
            return value
        raise PydanticCustomError(
            "prompt_type", "expected a string, a list of strings, a list of token ids or a list of such lists"
        )


class CompletionLogprobs(ResponseModel):
    """Parallel lists over tokens. The first token of an echoed prompt has no log-probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(ResponseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]
    prompt_token_ids: list[int] | None = Field(default=None, exclude_if=is_none)
    token_ids: list[int] | None = Field(default=None, exclude_if=is_none)


class Completion(ResponseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    specpilot: SpeculationReport


class CompletionChunkChoice(ResponseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    prompt_token_ids: list[int] | None = Field(default=None, exclude_if=is_none)
    token_ids: list[int] | None = Field(default=None, exclude_if=is_none)


class CompletionChunk(ResponseModel):
    """One frame of a stream; ``usage`` is null until the last frame, ``specpilot`` only in the last one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None
    specpilot: SpeculationReport | None = Field(default=None, exclude_if=is_none)
