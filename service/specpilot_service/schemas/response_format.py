"""``response_format``: free text, any JSON object, or JSON that follows a schema."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from specpilot_service.schemas.base import RequestModel

__all__ = ["JsonSchemaFormat", "ResponseFormat"]

_ANY_OBJECT = {"type": "object"}


class JsonSchemaFormat(RequestModel):
    """A named schema. It is always followed to the letter, whatever ``strict`` says."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$")
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(RequestModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise PydanticCustomError(
                "format_fields", 'expected json_schema together with type "json_schema" and only then'
            )
        return self

    @property
    def schema_text(self) -> str | None:
        """The JSON Schema of the answer as text, None for free text."""
        if self.type == "text":
            return None
        return json.dumps(_ANY_OBJECT if self.json_schema is None else self.json_schema.schema_)
