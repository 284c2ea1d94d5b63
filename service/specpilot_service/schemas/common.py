"""What chat and text completions share."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from specpilot.engines.mechanisms import MAX_TREE_NODES, Builder
from specpilot_service.schemas.base import RequestModel, ResponseModel
from specpilot_service.schemas.neutral import STREAM_NEUTRAL, drop_neutral
from specpilot_service.schemas.response_format import ResponseFormat

__all__ = [
    "MAX_CHOICES",
    "CompletionTokensDetails",
    "SamplingFields",
    "Speculation",
    "SpeculationReport",
    "StreamOptions",
    "Usage",
    "is_none",
    "is_text",
]

# Choices of one request, over all its prompts: they are decoded one after another in one place of the queue.
MAX_CHOICES = 128


def is_text(value: Any) -> bool:
    # JSON can spell lone surrogates, which are no text: they have no UTF-8.
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def is_none(value: object) -> bool:
    """For fields that are left out of an answer instead of being null."""
    return value is None


class StreamOptions(RequestModel):
    include_usage: bool = False

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, data: Any) -> Any:
        return drop_neutral(data, STREAM_NEUTRAL)


class Speculation(RequestModel):
    """Extension: how this request speculates; what is left out is the server's.

    ``drafter`` ``"none"`` decodes plainly. ``builder``, ``nodes`` (verified rows a step, root included) and
    ``positions`` (drafted positions) are those of :class:`specpilot.engines.mechanisms.Mechanisms`.
    """

    drafter: str | None = None
    builder: Builder | None = None
    nodes: int | None = Field(default=None, ge=1, le=MAX_TREE_NODES)
    positions: int | None = Field(default=None, ge=1)


def _as_stop_list(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


def _id_of(key: str) -> int:
    """A token id as JSON object keys spell it; only the usual spelling, so that no id stands there twice."""
    if re.fullmatch("0|[1-9][0-9]{0,9}", key) is None:
        raise PydanticCustomError("token_id", 'expected keys that are token ids, such as "50"')
    return int(key)


def _as_bias(value: Any) -> Any:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PydanticCustomError("bias_type", "expected an object from token ids to numbers")
    return {_id_of(key): bias for key, bias in value.items()}


class SamplingFields(RequestModel):
    """Sampling fields with OpenAI's defaults; ``SamplingParams`` checks their ranges.

    OpenAI has no ``top_k``, ``min_p``, ``repetition_penalty``, ``ignore_eos`` and ``return_tokens_as_token_ids``; they
    are named and meant as in vLLM, with ``top_k`` -1 or 0 for all tokens.
    """

    model: str
    n: int | None = Field(default=None, ge=1, le=8)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    top_p: float | None = Field(default=None, allow_inf_nan=False)
    top_k: int | None = None
    min_p: float | None = Field(default=None, allow_inf_nan=False)
    repetition_penalty: float | None = Field(default=None, allow_inf_nan=False)
    frequency_penalty: float | None = Field(default=None, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, allow_inf_nan=False)
    logit_bias: Annotated[dict[int, float], BeforeValidator(_as_bias)] = Field(default={})
    response_format: ResponseFormat | None = None
    return_tokens_as_token_ids: bool | None = None
    seed: int | None = None
    stop: Annotated[list[str], BeforeValidator(_as_stop_list)] = Field(default=[])
    ignore_eos: bool = False
    speculation: Speculation | None = None

    @property
    def num_choices(self) -> int:
        return self.n or 1


class CompletionTokensDetails(ResponseModel):
    """Draft tokens that entered the answer and draft tokens that were thrown away."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(ResponseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails


class SpeculationReport(ResponseModel):
    """Extension ``specpilot`` of every answer: verify steps and accept length over all its choices.

    ``mechanisms`` counts the steps by what they did (``StepRecord.mechanism``); ``fallback`` says why the answer does
    not speculate as it was asked to, null when it does.
    """

    drafter: str
    num_steps: int
    tau: float | None
    mechanisms: dict[str, int] = Field(default={})
    fallback: str | None = None
