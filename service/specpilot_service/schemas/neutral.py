"""Request fields that OpenAI clients send and that have no effect here: accepted at their neutral value only.

Anything else in them would ask for behaviour this server does not have, so it is refused by name instead of
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import PydanticCustomError

__all__ = [
    "CHAT_NEUTRAL",
    "COMMON_NEUTRAL",
    "COMPLETION_NEUTRAL",
    "MESSAGE_NEUTRAL",
    "STREAM_NEUTRAL",
    "NeutralRule",
    "drop_neutral",
]

NeutralRule = Callable[[Any], bool]


def _one_of(*values: Any) -> NeutralRule:
    # The type is compared too: 0 == False in Python, and a client that sends false for a number has made a
    # mistake.
    return lambda value: value is None or any(type(value) is type(v) and value == v for v in values)


def _is_label(value: Any) -> bool:
    """Labels for the operator of the original service; they never change an answer."""
    return value is None or isinstance(value, str)


def _is_metadata(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    )


COMMON_NEUTRAL: Mapping[str, NeutralRule] = {
    "user": _is_label,
}

COMPLETION_NEUTRAL: Mapping[str, NeutralRule] = {
    **COMMON_NEUTRAL,
    "best_of": _one_of(1),
    "suffix": _one_of(""),
}

CHAT_NEUTRAL: Mapping[str, NeutralRule] = {
    **COMMON_NEUTRAL,
    "audio": _one_of(),
    "function_call": _one_of("none", "auto"),
    "functions": _one_of([]),
    "metadata": _is_metadata,
    "modalities": _one_of(["text"]),
    "moderation": _one_of(),
    "parallel_tool_calls": _one_of(True, False),
    "prediction": _one_of(),
    "prompt_cache_key": _is_label,
    "prompt_cache_options": _one_of(),
    "prompt_cache_retention": _one_of("in_memory"),
    "reasoning_effort": _one_of("none"),
    "safety_identifier": _is_label,
    "service_tier": _one_of("auto", "default"),
    "store": _one_of(False),
    "tool_choice": _one_of("none", "auto"),
    "tools": _one_of([]),
    "verbosity": _one_of("medium"),
    "web_search_options": _one_of(),
}

STREAM_NEUTRAL: Mapping[str, NeutralRule] = {"include_obfuscation": _one_of(False)}

# What an assistant message carries when a client sends back one that it received.
MESSAGE_NEUTRAL: Mapping[str, NeutralRule] = {
    "annotations": _one_of([]),
    "audio": _one_of(),
    "function_call": _one_of(),
    "name": _one_of(),
    "refusal": _one_of(),
    "tool_calls": _one_of([]),
}


def drop_neutral(data: Any, rules: Mapping[str, NeutralRule]) -> Any:
    """The request body without its neutral fields; a field with any other value is refused by name."""
    if not isinstance(data, dict):
        return data
    for name, is_neutral in rules.items():
        if name in data and not is_neutral(data[name]):
            raise PydanticCustomError(
                "unsupported_parameter",
                "{param} is not supported here: leave it out or send its neutral value",
                {"param": name},
            )
    return {name: value for name, value in data.items() if name not in rules}
