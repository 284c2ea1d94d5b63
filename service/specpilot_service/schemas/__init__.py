"""The wire format: what clients send and what they get."""

from specpilot_service.schemas.chat import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatRequest,
    ChatTokenLogprob,
    ChatTopLogprob,
)
from specpilot_service.schemas.common import (
    CompletionTokensDetails,
    Speculation,
    SpeculationReport,
    StreamOptions,
    Usage,
)
from specpilot_service.schemas.completions import (
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionChunkChoice,
    CompletionLogprobs,
    CompletionRequest,
)
from specpilot_service.schemas.errors import ErrorBody, ErrorDetail
from specpilot_service.schemas.models import Health, ModelCard, ModelList
from specpilot_service.schemas.response_format import JsonSchemaFormat, ResponseFormat

__all__ = [
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
    "Completion",
    "CompletionChoice",
    "CompletionChunk",
    "CompletionChunkChoice",
    "CompletionLogprobs",
    "CompletionRequest",
    "CompletionTokensDetails",
    "ErrorBody",
    "ErrorDetail",
    "Health",
    "JsonSchemaFormat",
    "ModelCard",
    "ModelList",
    "ResponseFormat",
    "Speculation",
    "SpeculationReport",
    "StreamOptions",
    "Usage",
]
