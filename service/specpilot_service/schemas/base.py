"""The two kinds of model on the wire."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["MAX_INTEGER", "PlainText", "RequestModel", "ResponseModel"]

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly; the store's own limit, 2**63 - 1, is behind it."""

PlainText = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\u0000-\u001f\u007f-\u009f]*$")]
"""Names and reasons that people write: not empty, and without control characters, which garble logs and terminals."""


class RequestModel(BaseModel):
    """Strict: "0.5" is no number and true is no 1. Closed: a field nobody reads would be a silent lie."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ResponseModel(BaseModel):
    """Open to fields of a later server, so that an older client can read its answers."""

    model_config = ConfigDict(extra="ignore")
