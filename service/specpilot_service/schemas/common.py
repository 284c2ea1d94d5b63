"""What chat and text completions share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from specpilot_service.schemas.neutral import STREAM_NEUTRAL, drop_neutral

__all__ = [
    "MAX_CHOICES",
    "CompletionTokensDetails",
    "RequestModel",
    "ResponseModel",
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


class RequestModel(BaseModel):
    """Strict: "0.5" is no number and true is no 1. Closed: a field nobody reads would be a silent lie."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ResponseModel(BaseModel):
    """Open to fields of a later server, so that an older client can read its answers."""

    model_config = ConfigDict(extra="ignore")


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
    """Extension: which drafter speculates for this request; ``"none"`` decodes plainly."""

    drafter: str


def _as_stop_list(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


class SamplingFields(RequestModel):
    """Sampling fields with OpenAI's defaults; ``SamplingParams`` checks their ranges."""

    model: str
    n: int | None = Field(default=None, ge=1, le=8)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    top_p: float | None = Field(default=None, allow_inf_nan=False)
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
    """Extension ``specpilot`` of every answer: verify steps and accept length over all its choices."""

    drafter: str
    num_steps: int
    tau: float | None
